//! [25] [33] Invalid frees, and frees in invalid places: the program must get the driver's own
//! answers.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, Stream};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, double_free),
    hazard!(Always, interior_free),
    hazard!(Always, wild_free),
    hazard!(Always, wrong_ends_beside_a_kernel),
    hazard!(Always, async_double_free),
    hazard!(Always, odd_sizes),
    hazard!(Always, address_range),
    hazard!(Always, questions_about_freed_pinned_memory),
    hazard!(Always, free_in_callback),
    hazard!(Always, calls_in_callback),
];

pub const FAULTS: &[Hazard] = &[
    hazard!(Always, free_after_known_fault),
    hazard!(Always, requests_in_a_lost_context),
    hazard!(Always, requests_in_a_lost_context_that_was_not_current),
    hazard!(StrictOnly, fault_then_free),
];

const LARGE: usize = 33 << 20;

fn double_free(d: &Driver) -> Verdict {
    let (small, large) = (d.alloc(1000)?, d.alloc(LARGE)?);
    let codes = [small, small, large, large].map(|block| code(d.free(block)));
    let (one, two) = (d.alloc(1000)?, d.alloc(1000)?);
    Ok(format!("codes {codes:?}, then two blocks {}", one != two))
}

fn interior_free(d: &Driver) -> Verdict {
    let (small, large) = (d.alloc(1000)?, d.alloc(LARGE)?);
    let inside = [small + 256, small + 512, large + (4 << 20), large + 1];
    let refused = inside.map(|address| code(d.free(address)));
    let freed = [small, large].map(|block| code(d.free(block)));
    Ok(format!("codes {refused:?}, then {freed:?}"))
}

fn wild_free(d: &Driver) -> Verdict {
    let on_stack = 0_u64;
    let wild = [0x1234_5000, (&raw const on_stack) as u64, 0, 8, u64::MAX, 1 << 48];
    let codes = wild.map(|address| code(d.free(address)));
    Ok(format!("codes {codes:?}"))
}

/// [88] The driver refuses each of these at once. The kernel ends only after them.
fn wrong_ends_beside_a_kernel(d: &Driver) -> Verdict {
    d.create_context(0)?;
    let (stream, flag, pinned, mut managed) = (d.stream()?, d.pinned(64)?, d.pinned(SMALL)?, 0);
    let layout = std::alloc::Layout::from_size_align(SMALL, 4096).expect("a valid layout");
    // SAFETY: the size is not 0. The memory is never deallocated.
    let registered = unsafe { std::alloc::alloc(layout) } as u64;
    call!(d, cuMemHostRegister(registered, SMALL, 0))?;
    call!(d, cuMemAllocManaged(&mut managed, SMALL, 1))?;
    d.set_flag(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    let codes = [
        d.free(pinned),
        d.free(registered),
        d.free_pinned(managed),
        d.free_pinned(registered),
        call!(d, cuMemHostUnregister(pinned)),
        call!(d, cuMemHostUnregister(managed)),
        call!(d, cuCtxDestroy(0)),
        call!(d, cuCtxDetach(0)),
    ]
    .map(code);
    d.set_flag(flag, 1);
    d.synchronize()?;
    let later = [d.free(managed), d.free_pinned(pinned)].map(code);
    Ok(format!("codes {codes:?}, then {later:?}"))
}

/// Freed pinned memory is as unknown as any other address; the pinned memory beside it is not.
fn questions_about_freed_pinned_memory(d: &Driver) -> Verdict {
    const MEMORY_TYPE: u32 = 2;
    const SYNC_MEMOPS: u32 = 6;
    let bytes = 1 << 20;
    let pinned = [d.pinned(bytes)?, d.pinned(bytes)?];
    d.free_pinned(pinned[0])?;
    let mut answers = Vec::new();
    for address in pinned.map(|start| start + 5000) {
        let (mut number, mut flags, mut kind, mut kinds) = (0, 0, 0, [MEMORY_TYPE]);
        let mut places = [(&raw mut kind) as u64];
        let lists = (kinds.as_mut_ptr().cast(), places.as_mut_ptr().cast());
        answers.push(code(call!(d, cuMemHostGetFlags(&mut flags, address))));
        answers.push(code(call!(d, cuMemHostGetDevicePointer(&mut number, address, 0))));
        answers.push(code(call!(d, cuPointerGetAttribute(&mut number, MEMORY_TYPE, address))));
        answers.push(code(call!(d, cuPointerGetAttributes(1, lists.0, lists.1, address))));
        answers.push(kind);
        answers.push(code(d.address_range(address)));
        let on = [1_u32];
        answers
            .push(code(call!(d, cuPointerSetAttribute(on.as_ptr().cast(), SYNC_MEMOPS, address))));
        answers.push(code(call!(d, cuMemHostRegister(address, 4096, 0))));
    }
    Ok(format!("answers {answers:?}"))
}

fn async_double_free(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    let (ordered, plain) = (d.alloc_async(1 << 20, stream)?, d.alloc(1 << 20)?);
    let mut codes = Vec::new();
    for block in [ordered, plain] {
        codes.push(code(d.free_async(block, stream)));
        codes.push(code(d.free_async(block, stream)));
        codes.push(code(d.free(block)));
    }
    d.synchronize()?;
    Ok(format!("codes {codes:?}"))
}

fn odd_sizes(d: &Driver) -> Verdict {
    let sizes = [0, 1 << 60, usize::MAX, usize::MAX - 511];
    let answers = sizes.map(|bytes| {
        let mut pointer = 1;
        (code(call!(d, cuMemAlloc(&mut pointer, bytes))), pointer)
    });
    Ok(format!("codes and pointers {answers:?}, free of null {}", code(d.free(0))))
}

fn address_range(d: &Driver) -> Verdict {
    let (one, large) = (d.alloc(1)?, d.alloc(LARGE + 5)?);
    let ranges = [d.address_range(one)?, d.address_range(large + (5 << 20))?];
    let ranges = [(ranges[0].0 - one, ranges[0].1), (ranges[1].0 - large, ranges[1].1)];
    d.free(one)?;
    d.free(large)?;
    let gone = [one, large].map(|address| code(d.address_range(address)));
    Ok(format!("{ranges:?}, freed {gone:?}"))
}

static BLOCK: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicI32 = AtomicI32::new(-1);

/// A callback may make no driver calls, and the block remains the program's.
fn free_in_callback(d: &Driver) -> Verdict {
    unsafe extern "C" fn free(driver: *mut c_void) {
        // SAFETY: the driver outlives the synchronisation below.
        let driver = unsafe { &*driver.cast::<Driver>() };
        FREED.store(code(driver.free(BLOCK.load(Ordering::SeqCst))), Ordering::SeqCst);
    }
    let (stream, block) = (d.stream()?, d.alloc(BYTES)?);
    BLOCK.store(block, Ordering::SeqCst);
    d.launch("delay", stream, &[1000])?;
    d.host_function(stream, free, std::ptr::from_ref(d).cast_mut().cast())?;
    d.synchronize()?;
    fill(d, stream, block, BYTES, 1, 0)?;
    let good = holds(d, block, BYTES, 1)?;
    let freed = FREED.load(Ordering::SeqCst);
    Ok(format!("freed {freed}, alive {good}, later {}", code(d.free(block))))
}

/// [45] The driver refuses nearly every call in a callback, and memory to be freed remains
/// allocated.
fn calls_in_callback(d: &Driver) -> Verdict {
    unsafe extern "C" fn call_all(inside: *mut c_void) {
        // SAFETY: `Inside` outlives the synchronisation below.
        let inside = unsafe { &mut *inside.cast::<Inside>() };
        let Inside { d, stream, plain, ordered, codes } = inside;
        codes.push(code(d.alloc(SMALL)));
        codes.push(code(d.alloc_async(SMALL, *stream)));
        codes.push(code(d.free(*plain)));
        codes.push(code(d.free(*plain + 512)));
        codes.push(code(d.free_async(*ordered, *stream)));
        codes.push(code(d.free_async(*plain, *stream)));
        codes.push(code(d.memory_info()));
        codes.push(code(d.address_range(*plain)));
    }
    let stream = d.stream()?;
    let (plain, ordered) = (d.alloc(BYTES)?, d.alloc_async(BYTES, stream)?);
    let mut inside = Inside { d, stream, plain, ordered, codes: Vec::new() };
    d.host_function(stream, call_all, (&raw mut inside).cast())?;
    d.synchronize()?;
    fill(d, stream, plain, BYTES, 1, 0)?;
    fill(d, stream, ordered, BYTES, 2, 0)?;
    let alive = holds(d, plain, BYTES, 1)? && holds(d, ordered, BYTES, 2)?;
    let later = [code(d.free(plain)), code(d.free_async(ordered, stream))];
    Ok(format!("codes {:?}, alive {alive}, later {later:?}", inside.codes))
}

struct Inside<'a> {
    d: &'a Driver,
    stream: Stream,
    plain: u64,
    ordered: u64,
    codes: Vec<i32>,
}

fn free_after_known_fault(d: &Driver) -> Verdict {
    let (stream, block) = (d.stream()?, d.alloc(BYTES)?);
    d.launch("fault", stream, &[])?;
    let synchronised = code(d.synchronize());
    let codes = [code(d.free(block)), code(d.alloc(BYTES)), code(d.alloc_async(BYTES, stream))];
    Ok(format!("synchronised {synchronised}, then {codes:?}"))
}

/// Each of these calls may be the one that reports the fault. The thread has used the stream just
/// before.
fn requests_in_a_lost_context(d: &Driver) -> Verdict {
    let waits: [&dyn Fn(Stream, u64) -> Outcome; 4] = [
        &|stream, _| d.synchronize_stream(stream),
        &|_, event| call!(d, cuEventSynchronize(event)),
        &|_, _| d.synchronize(),
        &|stream, _| {
            let context = d.context();
            d.set_context(0)?;
            let waited = d.synchronize_stream(stream);
            d.set_context(context)?;
            waited
        },
    ];
    let mut told = Vec::new();
    for wait in waits {
        d.use_device(0)?;
        let (stream, event, flag) = (d.stream()?, d.event()?, d.pinned(64)?);
        let blocks = [d.alloc_async(BYTES, stream)?, d.alloc_async(BYTES, stream)?];
        d.free_async(blocks[0], stream)?;
        // Until the event is recorded, the faulting kernel must not run: the record would be
        // refused.
        d.set_flag(flag, 0);
        d.launch("spin", stream, &[flag, 1])?;
        d.launch("fault", stream, &[])?;
        d.record(event, stream)?;
        d.set_flag(flag, 1);
        let code_of_wait = code(wait(stream, event));
        let freed = code(d.free_async(blocks[1], stream));
        told.push([code_of_wait, freed, code(d.alloc_async(BYTES, stream)), code(d.alloc(BYTES))]);
        call!(d, cuDevicePrimaryCtxReset(0))?;
    }
    Ok(format!("codes {told:?}"))
}

fn requests_in_a_lost_context_that_was_not_current(d: &Driver) -> Verdict {
    let (first, second, stream) = (d.context(), d.create_context(0)?, d.stream()?);
    d.free(d.alloc(BYTES)?)?;
    d.launch("fault", stream, &[])?;
    d.set_context(first)?;
    let waited = code(d.synchronize_stream(stream));
    d.free(d.alloc(BYTES)?)?;
    d.set_context(second)?;
    Ok(format!("waited {waited}, asked {}", code(d.alloc(BYTES))))
}

/// In `ordered` the next synchronisation reports the error.
fn fault_then_free(d: &Driver) -> Verdict {
    let (stream, block) = (d.stream()?, d.alloc(BYTES)?);
    d.launch("fault", stream, &[])?;
    Ok(format!("freed {}", code(d.free(block))))
}
