//! [82] Pinned memory and kernels that the library knows, and what other threads' calls make of
//! that knowledge meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome};

use crate::tools::*;
use crate::visible::results::{filled, look_after, page_of_host, pages_of_host};

pub const ALL: &[Hazard] = &[
    hazard!(Full, copy_to_a_range_around_an_ended_one),
    hazard!(
        Full,
        copy_beside_a_refused_end,
        machine = "SIM_PAUSE_MS=cuMemHostUnregister@1=150,cuMemFreeHost@1=150"
    ),
    hazard!(
        Full,
        query_behind_a_free_beside_another,
        machine = "SIM_PAUSE_MS=cuEventSynchronize@1=400"
    ),
    hazard!(
        Full,
        pinned_argument_of_a_kernel_with_a_handle_of_another,
        machine = "SIM_DEVICES=2 SIM_PAUSE_MS=cuDevicePrimaryCtxRelease@1=200,cuDevicePrimaryCtxRelease_v2@1=200"
    ),
];

const PAGE: u64 = 4096;
const WORD: u64 = 8;

/// A registration ends with its context, without a call for it. A later one includes its pages.
fn copy_to_a_range_around_an_ended_one(d: &Driver) -> Verdict {
    let (first, pages) = (d.context(), pages_of_host(4));
    let second = d.create_context(0)?;
    call!(d, cuMemHostRegister(pages + PAGE, PAGE as usize, 0))?;
    call!(d, cuCtxDestroy(second))?;
    d.set_context(first)?;
    call!(d, cuMemHostRegister(pages, 4 * PAGE as usize, 0))?;
    let (source, last) = (filled(d, 7)?, pages + 3 * PAGE);
    look_after(d, |s| d.copy(last, source, 4096, s), || d.host_read(last) == 7)
}

/// One thread ends pinned memory by the call for registered memory, and the other way round. The
/// driver refuses, and another thread's copy reaches the memory meanwhile.
fn copy_beside_a_refused_end(d: &Driver) -> Verdict {
    let (allocated, registered) = (d.pinned(SMALL)?, page_of_host());
    call!(d, cuMemHostRegister(registered, PAGE as usize, 0))?;
    let unregister = || call!(d, cuMemHostUnregister(allocated));
    let free = || call!(d, cuMemFreeHost(registered));
    let mut verdicts = Vec::new();
    let ends: [(u64, &(dyn Fn() -> Outcome + Sync)); 2] =
        [(allocated, &unregister), (registered, &free)];
    for (memory, end) in ends {
        let source = filled(d, 7)?;
        let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
        let refused = std::thread::scope(|scope| {
            let ending = spawn(scope, d, || Ok(code(end())));
            sleep_ms(50);
            d.launch("delay", stream, &[LATE])?;
            d.copy(memory, source, PAGE as usize, stream)?;
            ending.join().expect("no program panics")
        })?;
        d.free(unrelated)?;
        verdicts.push((refused, d.host_read(memory + PAGE - WORD)));
    }
    Ok(format!("codes and words {verdicts:?}"))
}

/// A thread frees after an event, and another one knows that. A third thread's free waits for later
/// work meanwhile.
fn query_behind_a_free_beside_another(d: &Driver) -> Verdict {
    let (a, b, event) = (d.stream()?, d.stream()?, d.event()?);
    let (x, y, first, second) =
        (d.alloc(SMALL)?, d.alloc(SMALL)?, d.alloc(SMALL)?, d.alloc(SMALL)?);
    let (pinned, freed, over) = (d.pinned(SMALL)?, AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let frees = spawn(scope, d, || {
            fill(d, a, x, SMALL, 7, LATE)?;
            d.record(event, a)?;
            d.free(first)?;
            freed.store(true, Ordering::SeqCst);
            while !over.load(Ordering::SeqCst) {
                sleep_ms(1);
            }
            Ok(())
        });
        while !freed.load(Ordering::SeqCst) {
            sleep_ms(1);
        }
        let waits = spawn(scope, d, || {
            fill(d, b, y, SMALL, 7, LATE)?;
            d.copy(pinned, y, SMALL, b)?;
            d.free(second)
        });
        sleep_ms(100);
        let asked = code(call!(d, cuEventQuery(event)));
        over.store(true, Ordering::SeqCst);
        waits.join().expect("no program panics")?;
        frees.join().expect("no program panics")?;
        Ok(format!("code {asked}"))
    })
}

/// One thread releases a reference that it does not have, which the driver refuses. Meanwhile a
/// module is unloaded, and a kernel of the next one gets the handle of its kernel.
fn pinned_argument_of_a_kernel_with_a_handle_of_another(d: &Driver) -> Verdict {
    const NO_ARGUMENTS: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
                                .visible .entry no_arguments()\n{\n    ret;\n}\n";
    let (stream, word) = (d.stream()?, d.pinned(SMALL)?);
    let function_of = |module, name: &std::ffi::CStr| -> Outcome<u64> {
        let mut function = 0;
        call!(d, cuModuleGetFunction(&mut function, module, name.as_ptr().cast()))?;
        Ok(function)
    };
    let launch = |function, stream, places: &[*const u64]| {
        let list = places.as_ptr().cast();
        call!(d, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list, std::ptr::null()))
    };
    let module = load_module(d, NO_ARGUMENTS)?;
    let first = function_of(module, c"no_arguments")?;
    launch(first, stream, &[std::ptr::null()])?;
    d.synchronize()?;
    let refused = std::thread::scope(|scope| {
        let releasing = spawn(scope, d, || Ok(code(call!(d, cuDevicePrimaryCtxRelease(1)))));
        sleep_ms(60);
        call!(d, cuModuleUnload(module))?;
        let mut function = 0;
        for _ in 0..64 {
            function = function_of(load_module(d, &only_late_fill())?, c"late_fill")?;
            if function == first {
                break;
            }
        }
        let refused = releasing.join().expect("no program panics")?;
        let arguments = [word, WORD, 7, 0];
        let places = arguments.each_ref().map(std::ptr::from_ref);
        look_after(d, |s| launch(function, s, &places), || d.host_read(word) == 7)
            .map(|verdict| format!("{verdict}, code {refused}"))
    })?;
    Ok(refused)
}

/// A module with one kernel of the others' module.
fn only_late_fill() -> String {
    let all = include_str!("../../kernels.ptx");
    let (_, kernel) = all.split_once(".visible .entry late_fill(").expect("it has the kernel");
    let (kernel, _) = kernel.split_once("\n}\n").expect("the kernel ends");
    let head = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry late_fill(";
    format!("{head}{kernel}\n}}\n")
}
