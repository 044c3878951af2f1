//! [19] [74] Programs that query the default pool, or create pools.

use std::sync::Mutex;

use cachealloc_tests::driver::{Driver, LEGACY, Outcome, Stream};

use crate::memory::scarce::physical_memory;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, pool_sized_by_malloc_and_free),
    hazard!(Always, pool_used_and_trim),
    hazard!(Always, pool_numbers),
    hazard!(Always, pool_numbers_with_a_threshold),
    hazard!(Always, pool_peak_from_now_on),
    hazard!(Always, pool_used_by_threads),
    hazard!(Always, pool_of_its_own),
    hazard!(Always, pool_memory_after_its_context),
    hazard!(Always, trim_behind_a_free),
    hazard!(Always, trim_of_the_default_pool_behind_a_free, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, pool_without_dependencies_behind_a_free, machine = "SIM_MEMORY_MB=64"),
    hazard!(Always, pool_memory_never_used_freed_plainly, machine = "SIM_FREES_JUDGED=1"),
    hazard!(
        Always,
        pool_memory_on_an_idle_stream_freed_plainly,
        machine = "SIM_MEMORY_MB=64 SIM_FREES_JUDGED=1"
    ),
    hazard!(Always, pool_open_to_a_peer, machine = "SIM_DEVICES=2"),
    hazard!(Always, pool_opened_behind_an_allocation, machine = "SIM_DEVICES=2"),
    hazard!(Always, pool_opened_before_the_peer_is_used, machine = "SIM_DEVICES=2"),
    hazard!(Always, pool_opened_beside_access_that_ends, machine = "SIM_DEVICES=2"),
];

const MIB: usize = 1 << 20;
const REUSE_BY_EVENTS: u32 = 1;
const REUSE_BY_DEPENDENCIES: u32 = 3;
const RELEASE_THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const USED: u32 = 7;
const USED_PEAK: u32 = 8;

fn default_pool(d: &Driver) -> Outcome<u64> {
    let (mut pool, mut keep) = (0, u64::MAX);
    call!(d, cuDeviceGetDefaultMemPool(&mut pool, 0))?;
    call!(d, cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &mut keep))?;
    Ok(pool)
}

fn attribute_mib(d: &Driver, pool: u64, attribute: u32) -> Outcome<u64> {
    let mut value = u64::MAX;
    call!(d, cuMemPoolGetAttribute(pool, attribute, &mut value))?;
    Ok(value >> 20)
}

/// [85] The pool belongs to the device. Another context uses the memory, and frees it (measured).
fn pool_memory_after_its_context(d: &Driver) -> Verdict {
    call!(d, cuDevicePrimaryCtxRelease(0))?;
    let first = d.create_context(0)?;
    let block = d.alloc_async(SMALL, LEGACY)?;
    d.memset(block, 7, SMALL, LEGACY)?;
    d.synchronize()?;
    call!(d, cuCtxDestroy(first))?;
    d.create_context(0)?;
    let kept = holds(d, block, SMALL, u64::from_ne_bytes([7; 8]))?;
    d.free(block)?;
    ok_if(kept, "the memory ended with the context")
}

/// [74] On the plain driver the free has waited for the kernel before it.
fn trim_behind_a_free(d: &Driver) -> Verdict {
    let (stream, other, mut block) = (d.stream()?, d.alloc(SMALL)?, 0);
    let pool = pool_of_its_own_kept(d)?;
    call!(d, cuMemAllocFromPoolAsync(&mut block, 64 * MIB, pool, stream))?;
    fill(d, stream, block, SMALL, 1, LATE)?;
    d.free_async(block, stream)?;
    d.free(other)?;
    call!(d, cuMemPoolTrimTo(pool, 0))?;
    let (free, total) = d.memory_info()?;
    let reserved = attribute_mib(d, pool, RESERVED)?;
    ok_if(reserved == 0 && total - free < 64 * MIB, &format!("{reserved} MiB are the pool's"))
}

/// [74] The program has set how the default pool reuses memory: the driver serves it.
fn trim_of_the_default_pool_behind_a_free(d: &Driver) -> Verdict {
    let (stream, other, _kept) = (d.stream()?, d.alloc(SMALL)?, d.alloc(SMALL)?);
    let (pool, mut yes) = (default_pool(d)?, 1_i32);
    call!(d, cuMemPoolSetAttribute(pool, REUSE_BY_EVENTS, (&raw mut yes).cast()))?;
    let block = d.alloc_async(40 * MIB, stream)?;
    fill(d, stream, block, SMALL, 1, LATE)?;
    d.free_async(block, stream)?;
    d.free(other)?;
    call!(d, cuMemPoolTrimTo(pool, 0))?;
    Ok(format!("code {}", code(physical_memory(d, 40 * MIB))))
}

/// [74] Memory goes to another stream only when it is idle; the free has waited for that.
fn pool_without_dependencies_behind_a_free(d: &Driver) -> Verdict {
    let (a, b, other, _kept) = (d.stream()?, d.stream()?, d.alloc(SMALL)?, d.alloc(SMALL)?);
    let (pool, mut no, mut block) = (pool_of_its_own_kept(d)?, 0_i32, 0);
    call!(d, cuMemPoolSetAttribute(pool, REUSE_BY_DEPENDENCIES, (&raw mut no).cast()))?;
    call!(d, cuMemAllocFromPoolAsync(&mut block, 40 * MIB, pool, a))?;
    fill(d, a, block, SMALL, 1, LATE)?;
    d.free_async(block, a)?;
    d.free(other)?;
    Ok(format!("code {}", code(call!(d, cuMemAllocFromPoolAsync(&mut block, 40 * MIB, pool, b)))))
}

/// [59] The stream of the first request is busy. Its memory, which nothing uses, goes to another
/// stream.
fn pool_memory_never_used_freed_plainly(d: &Driver) -> Verdict {
    let (a, b, busy, pool) = (d.stream()?, d.stream()?, d.alloc(SMALL)?, pool_of_its_own_kept(d)?);
    fill(d, a, busy, SMALL, 1, LATE)?;
    let (mut first, mut second) = (0, 0);
    call!(d, cuMemAllocFromPoolAsync(&mut first, 8 * MIB, pool, a))?;
    d.free(first)?;
    call!(d, cuMemAllocFromPoolAsync(&mut second, 8 * MIB, pool, b))?;
    fill(d, b, second, 8 * MIB, 2, 0)?;
    ok_if(holds(d, second, 8 * MIB, 2)?, "the first block's fill was written to the second one")
}

/// [59] Nothing keeps the memory from being free at once, for a request of any kind.
fn pool_memory_on_an_idle_stream_freed_plainly(d: &Driver) -> Verdict {
    let (a, b, pool) = (d.stream()?, d.stream()?, pool_of_its_own_kept(d)?);
    let mut first = 0;
    call!(d, cuMemAllocFromPoolAsync(&mut first, 40 * MIB, pool, a))?;
    d.free(first)?;
    let second = d.alloc(40 * MIB)?;
    fill(d, b, second, SMALL, 2, 0)?;
    ok_if(holds(d, second, SMALL, 2)?, "the first block's fill was written to the second one")
}

/// Returns a new pool that keeps its memory.
fn pool_of_its_own_kept(d: &Driver) -> Outcome<u64> {
    let (mut pool, mut properties, mut keep) = (0, [0_u32; 22], u64::MAX);
    properties[..3].copy_from_slice(&[1, 0, 1]);
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    call!(d, cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &mut keep))?;
    Ok(pool)
}

/// kokkos#7032: an allocation that is freed at once makes the pool reserve memory for later ones.
fn pool_sized_by_malloc_and_free(d: &Driver) -> Verdict {
    let (stream, pool) = (d.stream()?, default_pool(d)?);
    let used = attribute_mib(d, pool, USED)?;
    let block = d.alloc_async(64 * MIB, stream)?;
    d.free_async(block, stream)?;
    d.synchronize_stream(stream)?;
    let reserved = attribute_mib(d, pool, RESERVED)?;
    Ok(format!("used {used}, then reserved {reserved}"))
}

fn pool_used_and_trim(d: &Driver) -> Verdict {
    let (stream, pool) = (d.stream()?, default_pool(d)?);
    attribute_mib(d, pool, USED)?;
    let block = d.alloc_async(32 * MIB, stream)?;
    let used = attribute_mib(d, pool, USED)?;
    d.free_async(block, stream)?;
    d.synchronize_stream(stream)?;
    call!(d, cuMemPoolTrimTo(pool, 0))?;
    let after = [USED_PEAK, USED, RESERVED].map(|which| attribute_mib(d, pool, which));
    Ok(format!("used {used}, after the trim {after:?}"))
}

/// [45] The attributes are read first when there is something to count, and must match to the byte.
fn pool_numbers(d: &Driver) -> Verdict {
    let (stream, mut pool) = (d.stream()?, 0);
    call!(d, cuDeviceGetDefaultMemPool(&mut pool, 0))?;
    numbers_of(d, pool, stream)
}

fn pool_numbers_with_a_threshold(d: &Driver) -> Verdict {
    let (stream, pool) = (d.stream()?, default_pool(d)?);
    numbers_of(d, pool, stream)
}

fn numbers_of(d: &Driver, pool: u64, stream: Stream) -> Verdict {
    let numbers = || -> Outcome<[u64; 4]> {
        let mut values = [u64::MAX; 4];
        for (attribute, value) in (RESERVED..).zip(&mut values) {
            call!(d, cuMemPoolGetAttribute(pool, attribute, value))?;
        }
        Ok(values)
    };
    let reset = |attribute, mut value: u64| {
        code(call!(d, cuMemPoolSetAttribute(pool, attribute, &mut value)))
    };
    let large = d.alloc_async(100 * MIB, stream)?;
    let small = d.alloc_async(1000, stream)?;
    let middle = d.alloc_async(40 * MIB + 3, stream)?;
    let mut seen = vec![numbers()?];
    d.free_async(large, stream)?;
    d.synchronize_stream(stream)?;
    seen.push(numbers()?);
    let codes = [reset(RESERVED + 1, 0), reset(USED_PEAK, 0), reset(USED_PEAK, 5), reset(USED, 0)];
    seen.push(numbers()?);
    // This free is not ordered on a stream.
    d.free(small)?;
    d.synchronize()?;
    seen.push(numbers()?);
    let again = d.alloc_async(2 * MIB, stream)?;
    seen.push(numbers()?);
    for block in [middle, again] {
        d.free_async(block, stream)?;
    }
    d.synchronize_stream(stream)?;
    call!(d, cuMemPoolTrimTo(pool, 0))?;
    seen.push(numbers()?);
    Ok(format!("{seen:?}, codes {codes:?}"))
}

/// Only the peak is asked for, not what the pool has reserved now.
fn pool_peak_from_now_on(d: &Driver) -> Verdict {
    let (stream, mut pool, mut peak) = (d.stream()?, 0, 0_u64);
    call!(d, cuDeviceGetDefaultMemPool(&mut pool, 0))?;
    let block = d.alloc_async(30 * MIB, stream)?;
    d.free_async(block, stream)?;
    d.synchronize_stream(stream)?;
    call!(d, cuMemPoolSetAttribute(pool, RESERVED + 1, &mut peak))?;
    call!(d, cuMemPoolGetAttribute(pool, RESERVED + 1, &mut peak))?;
    Ok(format!("peak {peak}"))
}

/// [45] Several threads use the memory; each has freed as much before.
fn pool_used_by_threads(d: &Driver) -> Verdict {
    let pool = default_pool(d)?;
    let used_kib = || -> Outcome<u64> {
        let mut bytes = u64::MAX;
        call!(d, cuMemPoolGetAttribute(pool, USED, &mut bytes))?;
        Ok(bytes >> 10)
    };
    let kept = Mutex::new(Vec::new());
    in_threads(d, 4, |_| {
        let stream = d.stream()?;
        for kib in [64, 3000, 500, 64, 1 << 15, 64] {
            let block = d.alloc_async(kib << 10, stream)?;
            d.free_async(block, stream)?;
        }
        kept.lock().unwrap().push((d.alloc_async(700 << 10, stream)?, stream));
        d.synchronize_stream(stream)?;
        Ok(0)
    })?;
    let in_threads = used_kib()?;
    for (block, stream) in kept.into_inner().unwrap() {
        d.free_async(block, stream)?;
        d.synchronize_stream(stream)?;
    }
    Ok(format!("kept {in_threads}, then {}", used_kib()?))
}

fn pool_of_its_own(d: &Driver) -> Verdict {
    let (stream, mut pool, mut current) = (d.stream()?, 0, 0);
    let mut properties = [0_u32; 22];
    (properties[0], properties[2]) = (1, 1);
    let before = d.alloc_async(BYTES, stream)?;
    call!(d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast()))?;
    call!(d, cuDeviceSetMemPool(0, pool))?;
    call!(d, cuDeviceGetMemPool(&mut current, 0))?;
    let (implied, mut named) = (d.alloc_async(32 * MIB, stream)?, 0);
    call!(d, cuMemAllocFromPoolAsync(&mut named, 32 * MIB, pool, stream))?;
    let used = attribute_mib(d, pool, USED)?;
    for block in [before, implied, named] {
        fill(d, stream, block, SMALL, 1, 1000)?;
        d.free_async(block, stream)?;
    }
    d.synchronize()?;
    Ok(format!("same pool {}, used {used}", current == pool))
}

/// The program grants a second device access to the default pool; that device then uses memory of
/// the pool.
fn pool_open_to_a_peer(d: &Driver) -> Verdict {
    let (first, stream, pool) = (d.context(), d.stream()?, default_pool(d)?);
    let early = d.alloc_async(BYTES, stream)?;
    d.free_async(early, stream)?;
    let access = [1_u32, 1, 3];
    call!(d, cuMemPoolSetAccess(pool, access.as_ptr().cast(), 1))?;
    let block = d.alloc_async(BYTES, stream)?;
    d.synchronize_stream(stream)?;
    d.use_device(1)?;
    let there = d.stream()?;
    fill(d, there, block, BYTES, 2, LATE)?;
    d.synchronize_stream(there)?;
    d.set_context(first)?;
    let used = attribute_mib(d, pool, USED)?;
    d.free_async(block, stream)?;
    Ok(format!("used {used}"))
}

/// NVIDIA's sample streamOrderedAllocationP2P: access to a pool includes the memory allocated
/// before. The program's own peer access stays as it was.
fn pool_opened_behind_an_allocation(d: &Driver) -> Verdict {
    let (first, stream, pool) = (d.context(), d.stream()?, default_pool(d)?);
    let block = d.alloc_async(BYTES, stream)?;
    d.synchronize_stream(stream)?;
    d.use_device(1)?;
    let there = d.stream()?;
    let access = [1_u32, 1, 3];
    call!(d, cuMemPoolSetAccess(pool, access.as_ptr().cast(), 1))?;
    fill(d, there, block, BYTES, 2, LATE)?;
    d.synchronize_stream(there)?;
    // The program has granted access to a pool, and no peer access between contexts.
    let codes = [
        call!(d, cuCtxDisablePeerAccess(first)),
        call!(d, cuCtxEnablePeerAccess(first, 0)),
        call!(d, cuCtxEnablePeerAccess(first, 0)),
        call!(d, cuCtxDisablePeerAccess(first)),
        call!(d, cuCtxDisablePeerAccess(first)),
    ];
    let codes = codes.map(|outcome| outcome.err().unwrap_or(0));
    fill(d, there, block, BYTES, 3, LATE)?;
    d.synchronize_stream(there)?;
    d.set_context(first)?;
    let right = holds(d, block, BYTES, 3)?;
    d.free_async(block, stream)?;
    Ok(format!("codes {codes:?}, contents right: {right}"))
}

/// The program enables peer access between contexts, opens the pool as well, and disables the
/// former.
fn pool_opened_beside_access_that_ends(d: &Driver) -> Verdict {
    let (first, stream, pool) = (d.context(), d.stream()?, default_pool(d)?);
    let block = d.alloc_async(BYTES, stream)?;
    d.synchronize_stream(stream)?;
    d.use_device(1)?;
    let there = d.stream()?;
    call!(d, cuCtxEnablePeerAccess(first, 0))?;
    let access = [1_u32, 1, 3];
    call!(d, cuMemPoolSetAccess(pool, access.as_ptr().cast(), 1))?;
    let ends = || code(call!(d, cuCtxDisablePeerAccess(first)));
    let codes = [ends(), ends()];
    fill(d, there, block, BYTES, 2, LATE)?;
    d.synchronize_stream(there)?;
    d.set_context(first)?;
    let right = holds(d, block, BYTES, 2)?;
    d.free_async(block, stream)?;
    Ok(format!("codes {codes:?}, contents right: {right}"))
}

fn pool_opened_before_the_peer_is_used(d: &Driver) -> Verdict {
    let (first, stream, pool) = (d.context(), d.stream()?, default_pool(d)?);
    let block = d.alloc_async(BYTES, stream)?;
    d.synchronize_stream(stream)?;
    let access = [1_u32, 1, 3];
    call!(d, cuMemPoolSetAccess(pool, access.as_ptr().cast(), 1))?;
    d.use_device(1)?;
    let there = d.stream()?;
    fill(d, there, block, BYTES, 2, LATE)?;
    d.synchronize_stream(there)?;
    d.set_context(first)?;
    let right = holds(d, block, BYTES, 2)?;
    d.free_async(block, stream)?;
    ok_if(right, "wrong contents")
}
