//! Injected failures, sticky errors, deadlocks, and the functions themselves.

mod common;
use common::*;

use cachealloc_tests::functions::Resolver;

#[test]
fn a_deadlock_ends_the_process() {
    let outcome = child("a_deadlock_ends_the_process", &[("SIM_DEADLOCK_MS", "300")], |d| {
        let flag = d.pinned(8).unwrap();
        d.launch("spin", d.stream().unwrap(), &[flag, 1]).unwrap();
        d.synchronize().unwrap();
    });
    assert_eq!(outcome.code, Some(86), "{}", outcome.output);
    assert!(outcome.report.contains("sim: deadlock: cuCtxSynchronize"), "{}", outcome.report);
}

#[test]
fn another_thread_may_end_the_wait() {
    let outcome = child("another_thread_may_end_the_wait", &[], |d| {
        let (flag, s) = (d.pinned(8).unwrap(), d.stream().unwrap());
        d.launch("spin", s, &[flag, 1]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(100));
                d.set_flag(flag, 1);
            });
            d.synchronize_stream(s).unwrap();
        });
    });
    outcome.clean();
}

#[test]
fn a_busy_thread_may_end_the_wait_late() {
    let outcome =
        child("a_busy_thread_may_end_the_wait_late", &[("SIM_DEADLOCK_MS", "300")], |d| {
            let (flag, s) = (d.pinned(8).unwrap(), d.stream().unwrap());
            d.launch("spin", s, &[flag, 1]).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let since = std::time::Instant::now();
                    while since.elapsed() < std::time::Duration::from_millis(900) {}
                    d.set_flag(flag, 1);
                });
                d.synchronize_stream(s).unwrap();
            });
        });
    outcome.clean();
}

/// A thread that stays busy forever does not end a wait.
#[test]
fn a_deadlock_beside_a_busy_thread_ends_the_process() {
    let name = "a_deadlock_beside_a_busy_thread_ends_the_process";
    let outcome = child(name, &[("SIM_DEADLOCK_MS", "100")], |d| {
        let (flag, s) = (d.pinned(8).unwrap(), d.stream().unwrap());
        d.launch("spin", s, &[flag, 1]).unwrap();
        std::thread::spawn(|| {
            loop {
                std::hint::spin_loop()
            }
        });
        d.synchronize_stream(s).unwrap();
    });
    assert_eq!(outcome.code, Some(86), "{}", outcome.output);
    assert!(outcome.report.contains("sim: deadlock: cuStreamSynchronize"), "{}", outcome.report);
}

#[test]
fn a_program_may_poll_memory_without_calling() {
    let outcome =
        child("a_program_may_poll_memory_without_calling", &[("SIM_IDLE_MS", "50")], |d| {
            let (p, s) = (d.pinned(8).unwrap(), d.stream().unwrap());
            d.launch("set", s, &[p, 1]).unwrap();
            // SAFETY: pinned memory of this test.
            while unsafe { (p as *const u64).read_volatile() } != 1 {
                std::thread::yield_now();
            }
        });
    outcome.clean();
}

#[test]
fn failures_come_when_asked_for() {
    let variables = [("SIM_FAIL", "cuMemAlloc_v2@3=2,cuEventCreate@*=2")];
    let outcome = child("failures_come_when_asked_for", &variables, |d| {
        let answers: Vec<_> = (0..4).map(|_| d.alloc(64).map(drop)).collect();
        assert_eq!(answers, [Ok(()), Ok(()), Err(2), Ok(())]);
        assert_eq!(d.event(), Err(2));
        assert!(d.fail("cuStreamCreate@1=719"));
        assert_eq!(d.stream(), Err(719));
        assert!(d.stream().is_ok());
        assert_eq!(d.calls("cuMemAlloc_v2"), Some(4));
    });
    outcome.ran();
}

#[test]
fn a_fault_stays() {
    let outcome = child("a_fault_stays", &[], |d| {
        let (s, p) = (d.stream().unwrap(), d.alloc(64).unwrap());
        d.launch("fault", s, &[]).unwrap();
        assert_eq!(d.synchronize_stream(s), Err(700));
        assert_eq!(d.synchronize(), Err(700));
        assert_eq!(d.launch("delay", s, &[1]), Err(700));
        assert_eq!(d.alloc(64), Err(700));
        assert_eq!(d.free(p), Err(700));
    });
    outcome.clean();
}

#[test]
fn a_free_brings_a_fault_to_light() {
    let outcome = child("a_free_brings_a_fault_to_light", &[], |d| {
        let (s, p) = (d.stream().unwrap(), d.alloc(64).unwrap());
        d.launch("fault", s, &[]).unwrap();
        assert_eq!(d.free(p), Err(700));
    });
    outcome.clean();
}

#[test]
fn the_lookup_answers_as_measured() {
    let outcome = child("the_lookup_answers_as_measured", &[], |d| {
        let symbol = |name| d.resolver.symbol(name).unwrap();
        let ask = |name, version, flags| d.resolver.ask(name, version, flags);
        let null = std::ptr::null_mut();
        assert_eq!(ask("cuMemAlloc", 12_000, 0), Ok((symbol("cuMemAlloc_v2"), 0)));
        assert_eq!(ask("cuMemAlloc", 3_000, 0), Ok((symbol("cuMemAlloc"), 0)));
        assert_eq!(ask("cuMemAlloc_v2", 12_000, 0), Ok((null, 1)));
        assert_eq!(ask("cuCtxGetId", 11_080, 0), Ok((null, 2)));
        assert_eq!(ask("cuLaunchKernel", 12_000, 2), Ok((symbol("cuLaunchKernel_ptsz"), 0)));
        assert_eq!(ask("cuLaunchKernel", 6_000, 2), Ok((null, 2)));
        assert_eq!(ask("cuMemFree", 12_000, 2), Ok((symbol("cuMemFree_v2"), 0)));
        assert_eq!(ask("cuMemAlloc", 13_010, 0), Err(1));
        assert_eq!(ask("cuGetProcAddress", 11_080, 0), Ok((symbol("cuGetProcAddress"), 0)));
        assert_eq!(ask("cuGetProcAddress", 12_000, 0), Ok((symbol("cuGetProcAddress_v2"), 0)));
    });
    outcome.clean();
}

/// A driver finds each function of its version at every version for which the function is the
/// newest, and none that is newer than itself.
#[test]
fn every_function_of_the_table_is_exported_and_found() {
    for driver in [12_040, 13_000, 13_050] {
        let variables = [("SIM_DRIVER_VERSION", &*driver.to_string())];
        let name = "every_function_of_the_table_is_exported_and_found";
        child(name, &variables, |d| finds_every_function(&d.resolver)).clean();
    }
}

fn finds_every_function(resolver: &Resolver) {
    let mut driver = 0;
    let asked = resolver.symbol("cuDriverGetVersion").expect("a function");
    // SAFETY: the function takes a place for a number.
    unsafe {
        std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn(*mut i32) -> i32>(asked)(
            &mut driver,
        )
    };
    let table = include_str!("../../../src/preload/functions.csv");
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|row| row.split(',').collect()).collect();
    let version_of = |row: &[&str]| row[2].parse().unwrap_or(0);
    let (mut addresses, mut newer) = (std::collections::HashSet::new(), 0);
    for row in &rows {
        let (symbol, base, version) = (row[0], row[1], version_of(row));
        let address = resolver.symbol(symbol).expect(symbol);
        assert!(addresses.insert(address), "{symbol}");
        if base.is_empty() {
            continue;
        }
        let flags = if row[3] == "1" { 2 } else { 1 };
        let later = rows.iter().filter(|other| other[1] == base && other[3] == row[3]);
        let later = later.map(|other| version_of(other)).filter(|other| *other > version);
        let last = later.min().map_or(driver, |next| driver.min(next - 1));
        for asked in [version, last] {
            let wanted = if version <= driver { Ok((address, 0)) } else { Err(1) };
            assert_eq!(resolver.ask(base, asked.max(version), flags), wanted, "{symbol}");
        }
        if version > driver {
            newer += 1;
            let found = resolver.ask(base, driver, flags).expect("an answer").0;
            assert_ne!(found, address, "{symbol}");
        }
    }
    assert_eq!(addresses.len(), 726);
    assert_eq!(newer == 0, driver == 13_050, "{newer} are newer than {driver}");
}

#[test]
fn an_older_driver_hides_newer_functions() {
    let variables = [("SIM_DRIVER_VERSION", "12040")];
    let outcome = child("an_older_driver_hides_newer_functions", &variables, |d| {
        let mut version = 0;
        // SAFETY: a local for the result.
        unsafe { (d.functions.cuDriverGetVersion)(&mut version) };
        assert_eq!(version, 12_040);
        assert_eq!(d.resolver.ask("cuCtxRecordEvent", 12_040, 0), Ok((std::ptr::null_mut(), 1)));
        assert_eq!(d.barrier(d.event().unwrap()), Err(500));
    });
    outcome.clean();
}

#[test]
fn parameters_are_read_from_the_module() {
    let outcome = child("parameters_are_read_from_the_module", &[], |d| {
        let function = d.kernel("check").unwrap();
        for index in 0..5 {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: locals for the results.
            let code = unsafe {
                (d.functions.cuFuncGetParamInfo)(function, index, &mut offset, &mut bytes)
            };
            assert_eq!((code, offset, bytes), (0, index * 8, 8));
        }
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: locals for the results.
        let code =
            unsafe { (d.functions.cuFuncGetParamInfo)(function, 5, &mut offset, &mut bytes) };
        assert_eq!(code, 1);
        assert_eq!(d.kernel("no such kernel"), Err(500));
    });
    outcome.clean();
}

#[test]
fn a_forked_child_has_no_driver() {
    let outcome = child("a_forked_child_has_no_driver", &[], |d| {
        // SAFETY: the child only makes one call and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let code = d.alloc(64).unwrap_err();
            // SAFETY: leaves without running what belongs to the parent.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: a child of this process and a local for its status.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 3);
    });
    outcome.clean();
}
