//! Options that change what the library does, as seen from outside.

use std::fmt::Write;
use std::fs;

use cachealloc_tests::{Ran, Run, command, scratch_file, target_folder};

/// A program that allocates more each time and frees at once.
fn growing(settings: &str) -> Ran {
    let trace = scratch_file("growing");
    let mut text = String::new();
    for round in 0..8 {
        writeln!(text, "a {round} {}\nf {round}", (10 + 4 * round) << 20).unwrap();
    }
    fs::write(&trace, text).expect("target/ is writable");
    Run::program(env!("CARGO_BIN_EXE_replay"))
        .arg(&trace)
        .env("SIM_MEMORY_MB", "512")
        .conf(&format!("stats_on_exit:stderr,{settings}"))
        .output()
        .ok()
}

/// Without the option nothing is released, because the device has free memory. With it, idle memory
/// above the share is released.
#[test]
fn garbage_is_collected_above_the_threshold() {
    let kept = growing("");
    assert!(!kept.stderr.contains("segments given back"), "{}", kept.stderr);
    let collected = growing("garbage_collection_threshold:0.1");
    assert!(collected.stderr.contains("segments given back"), "{}", collected.stderr);
}

/// Every child inherits the variable; a program name in it decides where it applies.
#[test]
fn programs_are_left_out_by_name() {
    let served = |settings: &str| {
        let conf = format!("stats_on_exit:stderr,{settings}");
        let ran = Run::program(env!("CARGO_BIN_EXE_hello")).conf(&conf).output().ok();
        ran.stderr.contains("allocations served")
    };
    assert!(served("only:any"));
    assert!(served("only:[other,hello]"));
    assert!(!served("only:other"));
    assert!(!served("except:[other,hello]"));
    assert!(served("except:other"));
}

/// Every wait has a reason and a place in the program.
#[test]
fn waits_are_reported_with_their_stacks() {
    let conf = "waits_on_exit:stderr,free_mode:strict";
    let ran = Run::program(env!("CARGO_BIN_EXE_hello")).conf(conf).output().ok();
    assert!(ran.stderr.contains("free: mode strict"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hello.rs"), "{}", ran.stderr);
    let quiet = Run::program(env!("CARGO_BIN_EXE_hello")).conf("free_mode:strict").output().ok();
    assert_eq!(quiet.stderr, "");
}

/// With `record:state` one entry is kept, as in PyTorch: this does not count as a ring that was too
/// small.
#[test]
fn a_snapshot_says_what_it_lacks() {
    let lacks = |settings: &str| {
        let path = scratch_file("pickle");
        let name = path.file_name().and_then(|name| name.to_str()).expect("we made it");
        let ran = Run::program(env!("CARGO_BIN_EXE_random"))
            .folder(target_folder().join("tests-c"))
            .conf(&format!("{settings},snapshot:{name}"))
            .output()
            .ok();
        assert!(ran.stderr.contains("snapshot: "), "{}", ran.stderr);
        fs::remove_file(path).expect("it was written");
        ran.stderr.contains("max_entries")
    };
    assert!(lacks("record:all,max_entries:100"));
    assert!(!lacks("record:all"));
    assert!(!lacks("record:state"));
}

/// The fill covers new memory from the driver as well as reused memory, even if nothing is cached.
#[test]
fn fresh_memory_holds_what_was_asked_for() {
    for (fill, byte) in [("zero", "00\n"), ("poison", "ff\n")] {
        for caching in ["", ",fraction_of_gpu_memory_to_use:0", ",async:false"] {
            for order in ["", "async"] {
                let run = Run::c("contents.c").args(order);
                let ran = run.conf(&format!("fill:{fill}{caching}")).output().ok();
                assert_eq!((&*ran.stdout, &*ran.stderr), (byte, ""), "{fill}{caching} {order}");
            }
        }
    }
}

/// If a program writes past the end of a block, the free reports it, together with the place that
/// allocated the block. No other program gets such a report.
#[test]
fn an_overrun_is_reported_with_the_place_of_the_allocation() {
    let settings = "red_zone:64,record:state,snapshot:/dev/null,log:quiet";
    for mode in ["ordered", "strict", "relaxed"] {
        let conf = format!("{settings},free_mode:{mode}");
        let sound = Run::c("contents.c").conf(&conf).output().ok();
        assert_eq!(sound.stderr, "", "{mode}");
        for order in ["", "async"] {
            let overrun = Run::c("contents.c").args("5").args(order).conf(&conf).output().ok();
            let said = &overrun.stderr;
            let what = "5 bytes past the end of a block of 1000 bytes";
            assert!(said.contains(what), "{mode} {order}: {said}");
            assert!(said.contains("made_here"), "{mode} {order}: {said}");
        }
    }
}

/// The library logs once on which device a process runs, and only on request: otherwise it does not
/// query the driver either.
#[test]
fn a_process_introduces_itself() {
    let run = || Run::program(env!("CARGO_BIN_EXE_hello"));
    let introduced = |ran: &Ran| -> Vec<String> {
        let lines = ran.said().into_iter().filter(|line| line.contains("Simulated device"));
        lines.map(str::to_string).collect()
    };
    let ran = run().conf("log:info").output().ok();
    let said = introduced(&ran);
    assert!(
        said.len() == 1
            && said[0].starts_with("cachealloc: device 0: Simulated device 0, driver 1")
            && said[0]
                .ends_with("; caching: auto_growth, free_mode: ordered, record: off, limit: none"),
        "{said:?}"
    );
    let others =
        "log:info,free_mode:strict,gpu_memory_limit_mb:300,fraction_of_gpu_memory_to_use:0";
    let said = introduced(&run().conf(others).output().ok());
    assert!(
        said[0].ends_with("; caching: off, free_mode: strict, record: off, limit: 300 MiB"),
        "{said:?}"
    );
    let ran = run().output().ok();
    assert_eq!((introduced(&ran).len(), ran.report.calls("cuDeviceGetName")), (0, 0));
}

/// A memory checker checks the driver's own allocations: it would find no errors inside a cache's
/// segments.
#[test]
fn nothing_is_cached_under_compute_sanitizer() {
    let conf = "stats_on_exit:stderr,log:info";
    let run = Run::program(env!("CARGO_BIN_EXE_hello")).conf(conf);
    let ran = run.env("NV_SANITIZER_INJECTION_PORT_BASE", "49152").output().ok();
    assert!(ran.stderr.contains("compute-sanitizer is active"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("allocations served"), "{}", ran.stderr);
}

/// The table is printed on stderr once for all processes of a tree, whether or not one of them
/// starts CUDA. The program runs as usual.
#[test]
fn help_needs_no_cuda() {
    let wanted = Run::program(command()).native().arg("options").output().ok().stdout;
    assert!(wanted.starts_with("CACHEALLOC_CONF=key:value"), "{wanted}");
    let ran = Run::program("true").conf("help").output().ok();
    assert_eq!((ran.stdout.as_str(), &ran.stderr), ("", &wanted));
    let children =
        || Run::program("sh").arg("-c").arg("true; echo x; sh -c 'true; exit 3'; exit $?");
    let ran = children().conf("record:all,help").output();
    assert_eq!((ran.stdout.as_str(), &ran.stderr, ran.code), ("x\n", &wanted, Some(3)));
    let ran = Run::program(env!("CARGO_BIN_EXE_hello")).conf("help").output().ok();
    assert_eq!(ran.stderr, wanted);
    // The option is not set, or the library is off.
    for run in [children().conf("hook:help.so"), children().conf("help").env("CACHEALLOC", "0")] {
        let ran = run.output();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), ("x\n", "", Some(3)));
    }
}
