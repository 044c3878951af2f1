//! [21] [22] [23] [33] Full devices, failing calls, and the reported amount of free memory.

use cachealloc_tests::driver::{Driver, Outcome, RELAXED};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, what_fits_natively_fits, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, room_from_separate_segments, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, room_from_one_segment, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, small_blocks_then_a_large_one, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, one_block_left_in_each_segment, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_moves_behind_a_kernel, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_moves_past_a_stream, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, several_threads_on_a_small_card, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, out_of_memory_is_the_drivers_own, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, memory_info, machine = "SIM_MEMORY_MB=128"),
    hazard!(Always, room_for_other_kinds, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, jit_log_sizes, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, launch_that_lacks_memory, ours),
    hazard!(Always, calls_that_may_not_be_repeated),
    hazard!(Full, no_event_left),
    hazard!(Full, full_card_and_eight_threads, machine = "SIM_MEMORY_MB=64"),
];

const MIB: usize = 1 << 20;

fn what_fits_natively_fits(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    for mib in [55, 10, 25, 40, 55, 1, 3, 55] {
        let block = d.alloc(mib * MIB)?;
        fill(d, stream, block, mib * MIB, 1, LATE / 10)?;
        d.free(block)?;
    }
    Ok("ok".into())
}

fn room_from_separate_segments(d: &Driver) -> Verdict {
    let (stream, blocks) = (d.stream()?, twelve_mib_each(d)?);
    d.free(blocks[0])?;
    d.free(blocks[2])?;
    let large = d.alloc(24 * MIB)?;
    fill(d, stream, large, 24 * MIB, 2, 0)?;
    ok_if(holds(d, large, 24 * MIB, 2)?, "wrong contents")
}

/// The same blocks are cut from one existing segment: the driver makes no difference.
fn room_from_one_segment(d: &Driver) -> Verdict {
    let whole = d.alloc(54 * MIB)?;
    d.free(whole)?;
    room_from_separate_segments(d)
}

fn twelve_mib_each(d: &Driver) -> Outcome<[u64; 4]> {
    Ok([d.alloc(12 * MIB)?, d.alloc(12 * MIB)?, d.alloc(12 * MIB)?, d.alloc(12 * MIB)?])
}

fn small_blocks_then_a_large_one(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    for round in 0..3 {
        let sizes = [512, 5_000, SMALL, MIB, 2 * MIB, BYTES];
        let blocks: Vec<u64> =
            (0..24).map(|index| d.alloc(sizes[index % 6])).collect::<Outcome<_>>()?;
        for (index, block) in blocks.iter().enumerate() {
            fill(d, stream, *block, sizes[index % 6], round, 1000)?;
        }
        blocks.into_iter().try_for_each(|block| d.free(block))?;
        let large = d.alloc(54 * MIB)?;
        d.free(large)?;
    }
    Ok("ok".into())
}

/// A block that is freed while a kernel still writes to it must move to another address to become
/// part of a larger one.
fn memory_moves_behind_a_kernel(d: &Driver) -> Verdict {
    let (stream, blocks) = (d.stream()?, twelve_mib_each(d)?);
    fill(d, stream, blocks[0], 12 * MIB, 1, LATE)?;
    d.free(blocks[0])?;
    d.free(blocks[2])?;
    let large = d.alloc(24 * MIB)?;
    fill(d, stream, large, 24 * MIB, 2, 0)?;
    ok_if(holds(d, large, 24 * MIB, 2)?, "wrong contents")
}

/// A stream frees the memory, which is available once the stream has reached that free.
fn memory_moves_past_a_stream(d: &Driver) -> Verdict {
    let (stream, blocks) = (d.stream()?, twelve_mib_each(d)?);
    d.free(blocks[2])?;
    fill(d, stream, blocks[0], 12 * MIB, 1, LATE)?;
    d.free_async(blocks[0], stream)?;
    let early = d.alloc(24 * MIB);
    d.synchronize()?;
    let large = early.or_else(|_| d.alloc(24 * MIB))?;
    fill(d, stream, large, 24 * MIB, 2, 0)?;
    ok_if(holds(d, large, 24 * MIB, 2)?, "wrong contents")
}

/// [23] On the plain driver nine tenths of the memory are free again.
fn one_block_left_in_each_segment(d: &Driver) -> Verdict {
    let blocks: Vec<u64> = (0..24).map(|_| d.alloc(1_900_000)).collect::<Outcome<_>>()?;
    for (index, block) in blocks.iter().enumerate() {
        if index % 10 != 5 {
            d.free(*block)?;
        }
    }
    let large = d.alloc(50 * MIB)?;
    d.free(large)?;
    Ok("ok".into())
}

/// Each thread holds at most a third of the memory; another may need what one has freed at once.
fn several_threads_on_a_small_card(d: &Driver) -> Verdict {
    let work = || {
        let stream = d.stream()?;
        for round in 0..30 {
            let mib = [3, 9, 16, 5][round % 4];
            let block = d.alloc(mib * MIB)?;
            fill(d, stream, block, SMALL, round as u64, 50_000)?;
            d.free(block)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = [(); 3].map(|()| spawn(scope, d, work));
        let ended = threads.map(|thread| thread.join().expect("no program panics"));
        ended.into_iter().fold(Ok(()), Result::and)
    })?;
    Ok("ok".into())
}

fn out_of_memory_is_the_drivers_own(d: &Driver) -> Verdict {
    let cached = d.alloc(20 * MIB)?;
    d.free(cached)?;
    let mut pointer = 7;
    let refused = code(call!(d, cuMemAlloc(&mut pointer, 1 << 40)));
    let most = code(call!(d, cuMemAlloc(&mut pointer, usize::MAX)));
    let again = code(d.alloc(50 * MIB));
    Ok(format!("codes {refused} {most}, pointer {pointer}, then {again}"))
}

fn memory_info(d: &Driver) -> Verdict {
    let free = || d.memory_info().map(|(free, _)| free as i64);
    let (before, total) = d.memory_info()?;
    let blocks = [d.alloc(40 * MIB)?, d.alloc(20 * MIB)?];
    let both = free()?;
    d.free(blocks[0])?;
    let one = free()?;
    d.free(blocks[1])?;
    let used = [both, one, free()?].map(|free| before as i64 - free);
    Ok(format!("total {total}, used {used:?}"))
}

/// The cache releases memory for requests that it does not serve itself.
fn room_for_other_kinds(d: &Driver) -> Verdict {
    let fill_cache = || d.alloc(50 * MIB).and_then(|block| d.free(block));
    let (mut managed, mut memory, mut pooled) = (0, 0, 0);
    fill_cache()?;
    let of_managed = code(call!(d, cuMemAllocManaged(&mut managed, 40 * MIB, 1)));
    d.free(managed)?;
    fill_cache()?;
    let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
    let of_virtual =
        code(call!(d, cuMemCreate(&mut memory, 40 * MIB, properties.as_ptr().cast(), 0)));
    call!(d, cuMemRelease(memory))?;
    fill_cache()?;
    let (stream, mut pool, pool_properties) = (d.stream()?, 0, [1_u32, 0, 1, 0, 0, 0, 0, 0]);
    let mut whole = [0_u32; 22];
    whole[..8].copy_from_slice(&pool_properties);
    call!(d, cuMemPoolCreate(&mut pool, whole.as_ptr().cast()))?;
    let of_pool = code(call!(d, cuMemAllocFromPoolAsync(&mut pooled, 40 * MIB, pool, stream)));
    d.free_async(pooled, stream)?;
    d.synchronize()?;
    fill_cache()?;
    let of_context = code(d.create_context(0));
    Ok(format!("managed {of_managed}, virtual {of_virtual}, pool {of_pool}, context {of_context}"))
}

/// [22] Sizes of log buffers are in-out: a second attempt must see what the program wrote.
fn jit_log_sizes(d: &Driver) -> Verdict {
    const LOG: u32 = 3;
    const LOG_BYTES: u32 = 4;
    let text = c".version 7.0\n.target sm_70\n.address_size 64\n\
                 .visible .global .align 8 .b8 table[20971520];\n";
    let cached = d.alloc(50 * MIB)?;
    d.free(cached)?;
    let mut log = [0_u8; 100];
    let options = [LOG_BYTES, LOG];
    let values = [log.len(), log.as_mut_ptr() as usize];
    let (mut module, lists) = (0, (options.as_ptr().cast(), values.as_ptr().cast()));
    let loaded =
        code(call!(d, cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, lists.0, lists.1)));
    // SAFETY: the driver writes through the pointer it was given.
    let said_bytes = unsafe { std::ptr::read_volatile(&raw const values[0]) };
    Ok(format!("code {loaded}, the log has {said_bytes} bytes"))
}

/// A launch may itself need memory: for local variables, or for printf.
fn launch_that_lacks_memory(d: &Driver) -> Verdict {
    let (stream, cached) = (d.stream()?, d.alloc(12 * MIB)?);
    d.launch("delay", stream, &[1])?;
    d.free(cached)?;
    d.fail("cuLaunchKernel@1=2");
    ok_if(d.launch("delay", stream, &[1]).is_ok(), "the cache was not emptied for it")
}

/// [21] Errors of these calls may stem from earlier work; a second call would hide them.
fn calls_that_may_not_be_repeated(d: &Driver) -> Verdict {
    let (stream, event, cached) = (d.stream()?, d.event()?, d.alloc(12 * MIB)?);
    let word = d.alloc(64)?;
    d.record(event, stream)?;
    d.free(cached)?;
    let failing = |name: &str| d.fail(&format!("{name}@1=2"));
    let mut codes = Vec::new();
    failing("cuCtxSynchronize");
    codes.push(code(d.synchronize()));
    failing("cuStreamSynchronize");
    codes.push(code(d.synchronize_stream(stream)));
    failing("cuEventSynchronize");
    codes.push(code(d.synchronize_event(event)));
    failing("cuStreamQuery");
    codes.push(code(d.query_stream(stream)));
    failing("cuEventQuery");
    codes.push(code(d.query_event(event)));
    failing("cuLaunchHostFunc");
    codes.push(code(d.host_function(stream, nothing, std::ptr::null_mut())));
    failing("cuStreamWriteValue64_v2");
    codes.push(code(call!(d, cuStreamWriteValue64(stream, word, 1, 0))));
    Ok(format!("codes {codes:?}"))
}

unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}

/// [33] No barrier can be made, so the frees wait instead.
fn no_event_left(d: &Driver) -> Verdict {
    let (a, b, data) = (d.stream()?, d.stream()?, d.alloc(SMALL)?);
    d.fail("cuEventCreate@*=2");
    for round in 0..5 {
        let block = d.alloc(BYTES)?;
        fill(d, a, block, BYTES, round, LATE / 5)?;
        fill(d, a, data, SMALL, round, 0)?;
        match round % 3 {
            2 => d.free_async(block, a)?,
            _ => d.free(block)?,
        }
        if round % 3 == 2 {
            d.synchronize()?;
        }
        let again = d.alloc(BYTES)?;
        fill(d, b, again, BYTES, 9, 0)?;
        fill(d, b, data, SMALL, 9, 0)?;
        d.free(again)?;
    }
    Ok("ok".into())
}

/// [33] Frees that submit their wait need a little memory: none is left, and all threads need it at
/// once.
fn full_card_and_eight_threads(d: &Driver) -> Verdict {
    let (captured, busy, data) = (d.stream()?, d.stream()?, d.alloc(SMALL)?);
    d.launch("delay", busy, &[1])?;
    let mut blocks = Vec::new();
    for bytes in [2 * MIB, SMALL, 4096, 512] {
        while let Ok(block) = d.alloc(bytes) {
            blocks.push(block);
        }
    }
    d.begin_capture(captured, RELAXED)?;
    fill(d, busy, data, SMALL, 1, LATE)?;
    let codes: Vec<i32> = std::thread::scope(|scope| {
        let free = |share: &[u64]| share.iter().map(|block| code(d.free(*block))).max();
        let threads: Vec<_> = blocks
            .chunks(blocks.len().div_ceil(8))
            .map(|share| spawn(scope, d, move || Ok(free(share).unwrap_or(0))))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no program panics"));
        ended.collect::<Outcome<_>>()
    })?;
    fill(d, d.stream()?, data, SMALL, 2, 0)?;
    let ended = code(d.end_capture(captured));
    ok_if(codes.iter().all(|code| *code == 0) && ended == 0, &format!("{codes:?}, end {ended}"))
}
