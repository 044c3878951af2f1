//! [36] [42] [43] Addresses of host memory and handles of contexts, streams and kernels, which the
//! driver reuses as soon as they are released. A library that keeps records by address or handle
//! must have dropped the record by then, and must keep the records of everything that still exists.

use std::sync::Barrier;

use cachealloc_tests::driver::{Driver, LEGACY};

use crate::tools::*;
use crate::visible::results::{look_after, page_of_host};

pub const ALL: &[Hazard] = &[
    hazard!(Full, pinned_memory_changes_hands, machine = "SIM_LINGER_US=50"),
    hazard!(Full, one_buffer_registered_by_two_threads, machine = "SIM_LINGER_US=50"),
    hazard!(Full, second_init, machine = "SIM_DEVICES=1"),
    hazard!(Always, contexts_of_several_threads, machine = "SIM_LINGER_US=50"),
    hazard!(Always, primary_context_of_several_threads, machine = "SIM_LINGER_US=50"),
    hazard!(Always, more_contexts_than_fit_a_table),
    hazard!(Always, context_that_is_detached),
    hazard!(Always, memory_where_a_context_was, machine = "SIM_LINGER_US=50"),
    hazard!(Full, kernel_of_a_later_context),
    hazard!(Always, free_on_a_stream_that_is_gone),
];

const ROUNDS: u64 = 400;
const PAGE: usize = 4096;
const LOOKED_EARLY: &str = "the host looked before the work was done";

/// [42] Pinned memory that one thread has freed is handed to the other thread a moment later.
fn pinned_memory_changes_hands(d: &Driver) -> Verdict {
    let early = in_threads(d, 2, |seed| {
        let (stream, source) = (d.stream()?, d.alloc(SMALL)?);
        let mut early = 0;
        for round in 1..=ROUNDS {
            let (value, block) = (round << 8 | seed, d.alloc(SMALL)?);
            let pinned = d.pinned(PAGE)?;
            d.host_write(pinned, 0);
            std::thread::sleep(std::time::Duration::from_micros(round % 100));
            fill(d, stream, source, PAGE, value, 30_000)?;
            d.copy(pinned, source, PAGE, stream)?;
            d.free(block)?;
            early += u64::from(d.host_read(pinned) != value);
            d.free_pinned(pinned)?;
        }
        d.synchronize()?;
        Ok(early)
    })?;
    ok_if(early == 0, &format!("{LOOKED_EARLY}, {early} times"))
}

/// [42] Each thread makes sure that the buffer is registered; for one of them it already is.
fn one_buffer_registered_by_two_threads(d: &Driver) -> Verdict {
    const REGISTERED_ALREADY: i32 = 712;
    let buffer = page_of_host();
    let together = Barrier::new(2);
    let early = in_threads(d, 2, |seed| {
        let (stream, source) = (d.stream()?, d.alloc(SMALL)?);
        let mut early = 0;
        for round in 1..=ROUNDS {
            let (value, block) = (round << 8 | seed, d.alloc(SMALL)?);
            fill(d, stream, source, PAGE, value, 30_000)?;
            together.wait();
            let registered = code(call!(d, cuMemHostRegister(buffer, PAGE, 0)));
            together.wait();
            let word = buffer + 8 * seed;
            d.host_write(word, 0);
            d.copy(word, source, 8, stream)?;
            d.free(block)?;
            early += u64::from(d.host_read(word) != value);
            together.wait();
            match registered {
                0 => call!(d, cuMemHostUnregister(buffer))?,
                REGISTERED_ALREADY => {}
                other => return Err(other),
            }
        }
        Ok(early)
    })?;
    ok_if(early == 0, &format!("{LOOKED_EARLY}, {early} times"))
}

/// [36] A library that contains its own CUDA runtime starts while two contexts exist.
fn second_init(d: &Driver) -> Verdict {
    let (first, a) = (d.context(), d.stream()?);
    d.launch("delay", a, &[1])?;
    d.create_context(0)?;
    let second = d.context();
    let p = d.alloc(BYTES)?;
    call!(d, cuInit(0))?;
    d.set_context(first)?;
    let (data, unrelated) = (d.alloc(BYTES)?, d.alloc(SMALL)?);
    fill(d, a, data, BYTES, 7, LATE)?;
    d.free(unrelated)?;
    d.set_context(second)?;
    // This kernel may begin before earlier work of its stream is complete. Stream order therefore
    // puts it after no event.
    d.launch_early("copy", LEGACY, &[p, data, BYTES as u64, 0])?;
    ok_if(holds(d, p, BYTES, 7)?, "the copy ran before the kernel")
}

/// [42] Three threads use separate contexts, and each other's handles in turn. One of them
/// releases the primary context and retains it again.
fn contexts_of_several_threads(d: &Driver) -> Verdict {
    call!(d, cuDevicePrimaryCtxRelease(0))?;
    let work = |seed: u64| {
        let mut wrong = 0;
        for round in 0..ROUNDS / 4 {
            let own = if seed == 1 { 0 } else { d.create_context(0)? };
            if seed == 1 {
                d.use_device(0)?;
            }
            let block = d.alloc(BYTES)?;
            d.memset(block, seed as u8, BYTES, LEGACY)?;
            std::thread::yield_now();
            wrong += u64::from(d.address_range(block)? != (block, BYTES));
            if round % 2 == 0 {
                wrong += u64::from(d.free(block).is_err());
            }
            let again = d.alloc(SMALL)?;
            d.free(again)?;
            if own == 0 {
                d.set_context(0)?;
                call!(d, cuDevicePrimaryCtxRelease(0))?;
            } else {
                call!(d, cuCtxDestroy(own))?;
            }
        }
        Ok(wrong)
    };
    let wrong = in_bare_threads(4, work)?;
    ok_if(wrong == 0, &format!("{wrong} blocks of a living context were forgotten"))
}

/// [42] One thread releases the primary context, and the other one retains it again.
fn primary_context_of_several_threads(d: &Driver) -> Verdict {
    call!(d, cuDevicePrimaryCtxRelease(0))?;
    let work = |_seed: u64| {
        let mut wrong = 0;
        for _ in 0..ROUNDS / 2 {
            d.use_device(0)?;
            let block = d.alloc(BYTES)?;
            d.memset(block, 1, BYTES, LEGACY)?;
            wrong += u64::from(d.address_range(block)? != (block, BYTES));
            wrong += u64::from(d.free(block).is_err());
            d.set_context(0)?;
            call!(d, cuDevicePrimaryCtxRelease(0))?;
        }
        Ok(wrong)
    };
    let wrong = in_bare_threads(4, work)?;
    ok_if(wrong == 0, &format!("{wrong} blocks of a living context were forgotten"))
}

/// [43] Creates many contexts one after another: each must work like the first.
fn more_contexts_than_fit_a_table(d: &Driver) -> Verdict {
    const BUFFER_ID: u32 = 7;
    let primary = d.context();
    let mut wrong = Vec::new();
    // On an H200 each takes 160 ms.
    let rounds = if d.races().is_some() { 400 } else { 100 };
    for round in 0..rounds {
        let context = d.create_context(0)?;
        let (one, two) = (d.alloc(1000)?, d.alloc(1000)?);
        d.memset(one, 1, 1000, LEGACY)?;
        let mut ids = [0; 2];
        call!(d, cuPointerGetAttribute(&mut ids[0], BUFFER_ID, one))?;
        call!(d, cuPointerGetAttribute(&mut ids[1], BUFFER_ID, two))?;
        if d.address_range(one + 10)? != (one, 1000) || ids[0] == ids[1] {
            wrong.push(round);
        }
        d.free(one)?;
        d.free(two)?;
        let (before, _) = d.memory_info()?;
        for _ in 0..4 {
            let block = d.alloc(30 << 20)?;
            d.free(block)?;
        }
        if d.memory_info()?.0 < before {
            wrong.push(round);
        }
        call!(d, cuCtxDestroy(context))?;
    }
    d.set_context(primary)?;
    ok_if(wrong.is_empty(), &format!("contexts {wrong:?}"))
}

/// [43] A context is in use until its last attachment is detached, and not after that.
fn context_that_is_detached(d: &Driver) -> Verdict {
    let primary = d.context();
    let (before, _) = d.memory_info()?;
    for _ in 0..10 {
        let (context, mut same) = (d.create_context(0)?, 0);
        call!(d, cuCtxAttach(&mut same, 0))?;
        let large = d.alloc(60 << 20)?;
        d.free(large)?;
        call!(d, cuCtxDetach(context))?;
        let block = d.alloc(SMALL)?;
        d.memset(block, 1, SMALL, LEGACY)?;
        d.free(block)?;
        call!(d, cuCtxDetach(context))?;
        d.set_context(primary)?;
    }
    let (after, _) = d.memory_info()?;
    ok_if(
        after <= before + (100 << 20),
        &format!("{} bytes more are free than before", after - before),
    )
}

/// [42] Contexts end by their last detach, or by their last reference. Another thread gets memory
/// at their addresses.
fn memory_where_a_context_was(d: &Driver) -> Verdict {
    let primary = d.context();
    let wrong = in_bare_threads(3, |seed| {
        let mut wrong = 0;
        for _ in 0..ROUNDS / 2 {
            if seed == 1 {
                let context = d.create_context(0)?;
                d.alloc(BYTES)?;
                call!(d, cuCtxDetach(context))?;
                continue;
            }
            d.set_context(primary)?;
            let mut block = 0;
            call!(d, cuMemAllocManaged(&mut block, BYTES, 1))?;
            wrong += u64::from(d.address_range(block)? != (block, BYTES));
            std::thread::yield_now();
            wrong += u64::from(d.free(block).is_err());
            let pooled = d.alloc_async(BYTES, LEGACY)?;
            wrong += u64::from(d.free_async(pooled, LEGACY).is_err());
        }
        Ok(wrong)
    })?;
    ok_if(wrong == 0, &format!("live memory was unknown {wrong} times"))
}

/// After its context has ended, a kernel's handle belongs to another kernel with other arguments.
fn kernel_of_a_later_context(d: &Driver) -> Verdict {
    let none = ".version 7.0\n.target sm_70\n.address_size 64\n\
                .visible .entry no_arguments()\n{\n    ret;\n}\n";
    let primary = d.context();
    let word = d.pinned(PAGE)?;
    let first = d.create_context(0)?;
    let (module, mut function) = (load_module(d, none)?, 0);
    call!(d, cuModuleGetFunction(&mut function, module, c"no_arguments".as_ptr().cast()))?;
    let (no_list, no_extra) = (std::ptr::null::<u8>(), std::ptr::null());
    // The list exists and is empty.
    let places = [no_list; 1];
    let list = places.as_ptr().cast();
    call!(d, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, LEGACY, list, no_extra))?;
    call!(d, cuCtxDestroy(first))?;
    d.set_context(primary)?;
    d.kernel("late_fill")?;
    look_after(d, |s| fill(d, s, word, 8, 7, 0), || d.host_read(word) == 7)
}

/// A free on a stream that no longer exists returns the driver's code for such a stream.
fn free_on_a_stream_that_is_gone(d: &Driver) -> Verdict {
    let (stream, other) = (d.stream()?, d.stream()?);
    let block = d.alloc_async(SMALL, other)?;
    d.synchronize()?;
    call!(d, cuStreamDestroy(stream))?;
    let refused = code(d.free_async(block, stream));
    // The block is still the program's.
    let freed = code(d.free_async(block, other));
    Ok(format!("codes {refused}, {freed}"))
}
