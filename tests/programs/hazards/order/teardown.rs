//! [4] Objects that earlier work uses are destroyed after a free: on the plain driver that work is
//! complete by then.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::memory::scarce::beside_references;
use crate::tools::*;
use crate::visible::results::page_of_host;

pub const ALL: &[Hazard] = &[
    hazard!(Full, destroy_texture),
    hazard!(Full, destroy_texture_after_a_second_free),
    hazard!(Full, unmap),
    hazard!(Full, access_taken_away),
    hazard!(Full, access_cut_to_reading),
    hazard!(Full, pool_access_taken_away, machine = "SIM_DEVICES=2"),
    hazard!(Full, unload_module),
    hazard!(Full, unregister),
    hazard!(Full, free_pinned),
    hazard!(Full, pinned_memory_again),
    hazard!(Full, look_behind_the_end_of_pinned_memory),
    hazard!(Always, pinned_memory_beside_another_end),
    hazard!(
        Always,
        pinned_memory_leaves_beside_another_end,
        machine = "SIM_PAUSE_MS=cuMemFreeHost@*=40"
    ),
    hazard!(Always, spin_and_one_reference_less),
    hazard!(Full, unmap_beside_references),
    hazard!(Full, free_of_foreign_memory),
];

/// In the simulation a texture is only a handle: the test observes that it was destroyed late.
fn destroy_texture(d: &Driver) -> Verdict {
    let (stream, words, unrelated) = (d.stream()?, d.alloc(SMALL)?, d.alloc(SMALL)?);
    let texture = texture(d, words)?;
    d.launch("delay", stream, &[LATE])?;
    d.free(unrelated)?;
    call!(d, cuTexObjectDestroy(texture))?;
    ok_if(is_late(d), "the texture was destroyed while a kernel ran")
}

/// The second free skips its barrier; the teardown must wait for the first one's.
fn destroy_texture_after_a_second_free(d: &Driver) -> Verdict {
    let (stream, words) = (d.stream()?, d.alloc(SMALL)?);
    let (first, second) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    let texture = texture(d, words)?;
    d.launch("delay", stream, &[LATE])?;
    d.free(first)?;
    d.free(second)?;
    call!(d, cuTexObjectDestroy(texture))?;
    ok_if(is_late(d), "the texture was destroyed while a kernel ran")
}

fn unmap(d: &Driver) -> Verdict {
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    let (address, memory) = mapped_page(d)?;
    fill(d, stream, address, PAGE, 1, LATE)?;
    d.free(unrelated)?;
    call!(d, cuMemUnmap(address, PAGE))?;
    call!(d, cuMemRelease(memory))?;
    call!(d, cuMemAddressFree(address, PAGE))?;
    no_fault(d)
}

pub const PAGE: usize = 2 << 20;
const NOTHING: u32 = 0;
const READ: u32 = 1;
const READ_WRITE: u32 = 3;

/// Maps memory of device 0 for reading and writing.
pub fn mapped_page(d: &Driver) -> Outcome<(u64, u64)> {
    // CUmemAllocationProp: pinned memory of device 0.
    let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
    let (mut address, mut memory) = (0, 0);
    call!(d, cuMemAddressReserve(&mut address, PAGE, 0, 0, 0))?;
    call!(d, cuMemCreate(&mut memory, PAGE, properties.as_ptr().cast(), 0))?;
    call!(d, cuMemMap(address, PAGE, 0, memory, 0))?;
    set_access(d, address, READ_WRITE)?;
    Ok((address, memory))
}

fn set_access(d: &Driver, address: u64, flags: u32) -> Outcome {
    // CUmemAccessDesc: device 0.
    let access = [1_u32, 0, flags];
    call!(d, cuMemSetAccess(address, PAGE, access.as_ptr().cast(), 1))
}

/// [44] The mapping stays, but nothing may access it any more.
fn access_taken_away(d: &Driver) -> Verdict {
    less_access(d, NOTHING)
}

fn access_cut_to_reading(d: &Driver) -> Verdict {
    less_access(d, READ)
}

fn less_access(d: &Driver, flags: u32) -> Verdict {
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    let (address, _) = mapped_page(d)?;
    fill(d, stream, address, PAGE, 1, LATE)?;
    d.free(unrelated)?;
    set_access(d, address, flags)?;
    d.synchronize()?;
    set_access(d, address, READ_WRITE)?;
    ok_if(holds(d, address, PAGE, 1)?, "the kernel did not write")
}

/// [44] A device may not use a pool of another one any more.
fn pool_access_taken_away(d: &Driver) -> Verdict {
    let (own, first) = (d.stream()?, d.context());
    let pool = made_by(d, "cuDeviceGetDefaultMemPool", &[0])?;
    let allow = |flags| {
        // CUmemAccessDesc: device 1.
        let access = place(&[1 | 1 << 32, flags]);
        call_words(d, "cuMemPoolSetAccess", &[pool, access, 1])
    };
    allow(READ_WRITE.into())?;
    let block = d.alloc_async(SMALL, own)?;
    d.synchronize_stream(own)?;
    d.use_device(1)?;
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    fill(d, stream, block, 4096, 5, LATE)?;
    d.free(unrelated)?;
    allow(NOTHING.into())?;
    d.synchronize()?;
    d.set_context(first)?;
    ok_if(holds(d, block, 4096, 5)?, "the kernel did not write")
}

fn unload_module(d: &Driver) -> Verdict {
    let text = ".version 7.0\n.target sm_70\n.address_size 64\n\
                .visible .global .align 8 .b8 table[4096];\n";
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    let module = load_module(d, text)?;
    let table = global(d, module, c"table")?;
    fill(d, stream, table, 4096, 1, LATE)?;
    d.free(unrelated)?;
    call!(d, cuModuleUnload(module))?;
    Ok("ok".into())
}

fn unregister(d: &Driver) -> Verdict {
    let page = page_of_host();
    call!(d, cuMemHostRegister(page, 4096, 0))?;
    end_of_host_memory(d, page, |page| call!(d, cuMemHostUnregister(page)))
}

fn free_pinned(d: &Driver) -> Verdict {
    let page = d.pinned(4096)?;
    end_of_host_memory(d, page, |page| d.free_pinned(page))
}

/// [63] Memory that a copy still reads is freed and requested again. On the plain driver the free
/// waits, and the new memory is unused.
fn pinned_memory_again(d: &Driver) -> Verdict {
    let (stream, target) = (d.stream()?, d.alloc(SMALL)?);
    for round in 0..3 {
        let first = d.pinned(SMALL)?;
        if d.host_read(first + WORD) != 0 {
            return Ok("not new".into());
        }
        d.host_write(first, 7 + round);
        d.host_write(first + WORD, 1);
        d.launch("delay", stream, &[LATE])?;
        d.copy(target, first, SMALL, stream)?;
        d.free_pinned(first)?;
        let second = d.pinned(SMALL)?;
        d.host_write(second, 9);
        if d.read_words(target, 1)? != [7 + round] {
            return Ok("overwritten before it was copied".into());
        }
        d.free_pinned(second)?;
    }
    Ok("ok".into())
}

/// [63] After one piece of pinned memory is freed, the host may read what a kernel wrote to another
/// piece.
fn look_behind_the_end_of_pinned_memory(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    let (page, unrelated) = (d.pinned(4096)?, d.pinned(4096)?);
    fill(d, stream, page, 4096, 7, LATE)?;
    d.free_pinned(unrelated)?;
    ok_if(d.host_read(page) == 7, "the host read before the work was done")
}

/// [63] The allocation is unchanged when a context ends that it does not belong to.
fn pinned_memory_beside_another_end(d: &Driver) -> Verdict {
    const BUFFER_ID: u32 = 7;
    let id = |address| -> Outcome<u64> {
        let mut id = 0;
        call!(d, cuPointerGetAttribute(&mut id, BUFFER_ID, address))?;
        Ok(id)
    };
    d.free_pinned(d.pinned(SMALL)?)?;
    let pinned = d.pinned(SMALL)?;
    let before = id(pinned)?;
    another_context_ends(d)?;
    ok_if(id(pinned)? == before, "the memory became another allocation")
}

/// [63] Freed memory is unknown, even while the driver takes long to release it.
fn pinned_memory_leaves_beside_another_end(d: &Driver) -> Verdict {
    let pinned = d.pinned(SMALL)?;
    d.free_pinned(pinned)?;
    let ask = || {
        // Host memory is short: the library must release what it retains.
        d.fail("cuMemHostAlloc@*=2");
        Ok(code(d.pinned(BYTES)))
    };
    std::thread::scope(|scope| {
        let asking = spawn(scope, d, ask);
        sleep_ms(10);
        another_context_ends(d)?;
        let mut flags = 0;
        let known = call!(d, cuMemHostGetFlags(&mut flags, pinned)).is_ok();
        let asked = asking.join().expect("no program panics")?;
        Ok(format!("asked {asked}, known {known}"))
    })
}

fn another_context_ends(d: &Driver) -> Outcome {
    let first = d.context();
    let second = d.create_context(0)?;
    d.alloc(SMALL)?;
    call!(d, cuCtxDestroy(second))?;
    d.set_context(first)
}

/// [63] Libraries hold a reference to the primary context for a while. Releasing it waits for no
/// work.
fn spin_and_one_reference_less(d: &Driver) -> Verdict {
    d.free_pinned(d.pinned(SMALL)?)?;
    let (stream, flag, mut context) = (d.stream()?, d.pinned(64)?, 0);
    d.host_write(flag, 0);
    d.launch("spin", stream, &[flag, 1])?;
    call!(d, cuDevicePrimaryCtxRetain(&mut context, 0))?;
    call!(d, cuDevicePrimaryCtxRelease(0))?;
    d.set_flag(flag, 1);
    d.synchronize()?;
    Ok("ok".into())
}

/// [4] Another thread takes references to the primary context and releases them.
pub fn unmap_beside_references(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    let round = |_| {
        let (unrelated, (address, memory)) = (d.alloc(SMALL)?, mapped_page(d)?);
        fill(d, stream, address, SMALL, 1, LATE)?;
        d.free(unrelated)?;
        // The other thread may be at any point.
        std::thread::sleep(std::time::Duration::from_micros(100));
        call!(d, cuMemUnmap(address, PAGE))?;
        call!(d, cuMemRelease(memory))?;
        call!(d, cuMemAddressFree(address, PAGE))?;
        d.synchronize()
    };
    beside_references(d, || (0..50).try_for_each(round))?;
    Ok("ok".into())
}

fn end_of_host_memory(d: &Driver, page: u64, end: impl FnOnce(u64) -> Outcome) -> Verdict {
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    fill(d, stream, page, 4096, 7, LATE)?;
    d.free(unrelated)?;
    end(page)?;
    no_fault(d)
}

/// On a GPU, work that uses a destroyed object causes a fault, which a synchronization reports.
fn no_fault(d: &Driver) -> Verdict {
    d.synchronize()?;
    Ok("ok".into())
}

/// Freeing memory that the library did not allocate uses the driver's own call, ordered after the
/// frees before it.
fn free_of_foreign_memory(d: &Driver) -> Verdict {
    let (stream, unrelated, mut managed) = (d.stream()?, d.alloc(SMALL)?, 0);
    call!(d, cuMemAllocManaged(&mut managed, SMALL, 1))?;
    fill(d, stream, managed, SMALL, 1, LATE)?;
    d.free(unrelated)?;
    d.free(managed)?;
    ok_if(is_late(d), "the free did not wait")
}

fn is_late(d: &Driver) -> bool {
    d.virtual_ns().is_none_or(|now| now >= LATE)
}

pub fn texture(d: &Driver, words: u64) -> Outcome<u64> {
    // CUDA_RESOURCE_DESC: linear memory, one channel of unsigned 32-bit words. CUDA_TEXTURE_DESC:
    // read as integers.
    let (mut resource, mut description, mut texture) = ([0_u64; 18], [0_u32; 26], 0);
    resource[..4].copy_from_slice(&[2, words, 1 << 32 | 3, SMALL as u64]);
    description[4] = 1;
    let places = (resource.as_ptr().cast(), description.as_ptr().cast());
    call!(d, cuTexObjectCreate(&mut texture, places.0, places.1, std::ptr::null()))?;
    Ok(texture)
}
