//! [5] Memory that others see once a call has given it to them. What another process, another API or
//! another device finds there after a free is modelled by a host read that nothing but the free
//! orders.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::tools::*;
use crate::visible::results::look_after;

/// One hazard for each way to share memory, which returns the address of what others see.
macro_rules! shared_by {
    ($($name:ident = $share:expr;)+) => {
        pub const ALL: &[Hazard] =
            &[$(hazard!(Full, $name, machine = "SIM_DRIVER_VERSION=13050"),)+];
        $(fn $name(d: &Driver) -> Verdict {
            seen_by_others(d, $share)
        })+
    };
}

shared_by! {
    pool_that_is_imported = |d| {
        let pool = exported_pool(d)?.1;
        d.alloc(SMALL).inspect(|_| assert_ne!(pool, 0))
    };
    pointer_of_an_exported_pool = |d| {
        let memory = memory_of(d, shareable_pool(d)?)?;
        call_words(d, "cuMemPoolExportPointer", &[out(), memory])?;
        Ok(memory)
    };
    pointer_of_an_imported_pool = |d| {
        let (exported, imported) = exported_pool(d)?;
        // As the process that exported it would send it.
        let data = place(&[exported, memory_of(d, exported)?]);
        made_by(d, "cuMemPoolImportPointer", &[imported, data])
    };
    memory_in_a_multicast_object = |d| {
        let ((memory, address), multicast) = (physical(d)?, multicast(d)?);
        call_words(d, "cuMulticastBindMem", &[multicast, 0, memory, 0, PAGE, 0])?;
        Ok(address)
    };
    memory_of_a_device_in_a_multicast_object = |d| {
        let ((memory, address), multicast) = (physical(d)?, multicast(d)?);
        call_words(d, "cuMulticastBindMem_v2", &[multicast, 0, 0, memory, 0, PAGE, 0])?;
        Ok(address)
    };
    address_in_a_multicast_object = |d| {
        let (address, multicast) = (physical(d)?.1, multicast(d)?);
        call_words(d, "cuMulticastBindAddr", &[multicast, 0, address, PAGE, 0])?;
        Ok(address)
    };
    address_on_a_device_in_a_multicast_object = |d| {
        let (address, multicast) = (physical(d)?.1, multicast(d)?);
        call_words(d, "cuMulticastBindAddr_v2", &[multicast, 0, 0, address, PAGE, 0])?;
        Ok(address)
    };
    logical_endpoint_that_is_exported = |d| {
        let (endpoint, address) = endpoint(d)?;
        call_words(d, "cuLogicalEndpointExport", &[out(), endpoint, FABRIC])?;
        Ok(address)
    };
    logical_endpoint_that_is_imported = |d| {
        let (endpoint, address) = endpoint(d)?;
        let (id, sent) = (reserve_id(d)?, place(&[endpoint]));
        call_words(d, "cuLogicalEndpointImport", &[id, sent, FABRIC])?;
        Ok(address)
    };
    external_memory = |d| {
        let description = [DESCRIPTOR, file(SMALL)?, 0, SMALL as u64];
        let memory = made_by(d, "cuImportExternalMemory", &[place(&description)])?;
        let buffer = place(&[0, SMALL as u64]);
        made_by(d, "cuExternalMemoryGetMappedBuffer", &[memory, buffer])
    };
    external_semaphore = |d| {
        semaphore(d)?;
        d.alloc(SMALL)
    };
    buffer_object_of_opengl = |d| {
        call_words(d, "cuGLRegisterBufferObject", &[1])?;
        d.alloc(SMALL)
    };
    buffer_of_opengl = |d| beside(d, "cuGraphicsGLRegisterBuffer", &[1, 0]);
    image_of_opengl = |d| beside(d, "cuGraphicsGLRegisterImage", &[1, 0, 0]);
    image_of_egl = |d| beside(d, "cuGraphicsEGLRegisterImage", &[1, 0]);
    video_surface_of_vdpau = |d| beside(d, "cuGraphicsVDPAURegisterVideoSurface", &[1, 0]);
    output_surface_of_vdpau = |d| beside(d, "cuGraphicsVDPAURegisterOutputSurface", &[1, 0]);
    consumer_of_an_egl_stream = |d| beside(d, "cuEGLStreamConsumerConnect", &[1]);
    consumer_of_an_egl_stream_with_flags =
        |d| beside(d, "cuEGLStreamConsumerConnectWithFlags", &[1, 0]);
    producer_of_an_egl_stream = |d| beside(d, "cuEGLStreamProducerConnect", &[1, 16, 16]);
}

const PAGE: u64 = 2 << 20;
const PINNED: u64 = 1;
const DEVICE: u64 = 1;
const FABRIC: u64 = 1;
const UNICAST: u64 = 1;
/// A kind of handle of memory and of semaphores.
const DESCRIPTOR: u64 = 1;

fn seen_by_others(d: &Driver, share: fn(&Driver) -> Outcome<u64>) -> Verdict {
    let seen = share(d)?;
    d.synchronize()?;
    look_after(d, |s| fill(d, s, seen, 8, 7, 0), || d.host_read(seen) == 7)
}

/// Registers a resource, and returns a block that may be one.
fn beside(d: &Driver, register: &str, words: &[u64]) -> Outcome<u64> {
    made_by(d, register, words)?;
    d.alloc(SMALL)
}

fn shareable_pool(d: &Driver) -> Outcome<u64> {
    made_by(d, "cuMemPoolCreate", &[place(&[PINNED | DESCRIPTOR << 32, DEVICE])])
}

/// Returns a pool, and an import of it.
fn exported_pool(d: &Driver) -> Outcome<(u64, u64)> {
    let pool = shareable_pool(d)?;
    let file = made_by(d, "cuMemPoolExportToShareableHandle", &[pool, DESCRIPTOR, 0])?;
    let imported = made_by(d, "cuMemPoolImportFromShareableHandle", &[file, DESCRIPTOR, 0])?;
    Ok((pool, imported))
}

fn memory_of(d: &Driver, pool: u64) -> Outcome<u64> {
    made_by(d, "cuMemAllocFromPoolAsync", &[SMALL as u64, pool, d.stream()?])
}

/// Returns physical memory, and an address at which it is mapped.
fn physical(d: &Driver) -> Outcome<(u64, u64)> {
    let memory = made_by(d, "cuMemCreate", &[PAGE, place(&[PINNED, DEVICE]), 0])?;
    let address = made_by(d, "cuMemAddressReserve", &[PAGE, 0, 0, 0])?;
    call_words(d, "cuMemMap", &[address, PAGE, 0, memory, 0])?;
    call_words(d, "cuMemSetAccess", &[address, PAGE, place(&[DEVICE, 3]), 1])?;
    Ok((memory, address))
}

fn multicast(d: &Driver) -> Outcome<u64> {
    let multicast = made_by(d, "cuMulticastCreate", &[place(&[1, PAGE, DESCRIPTOR, 0])])?;
    call_words(d, "cuMulticastAddDevice", &[multicast, 0])?;
    Ok(multicast)
}

fn reserve_id(d: &Driver) -> Outcome<u64> {
    made_by(d, "cuLogicalEndpointIdReserve", &[1])
}

/// Returns a logical endpoint, and the address of its memory.
fn endpoint(d: &Driver) -> Outcome<(u64, u64)> {
    let (id, address) = (reserve_id(d)?, physical(d)?.1);
    call_words(d, "cuLogicalEndpointCreate", &[id, place(&[UNICAST, PAGE, FABRIC])])?;
    call_words(d, "cuLogicalEndpointQuery", &[id, 1, out()])?;
    call_words(d, "cuLogicalEndpointBindAddr", &[id, 0, 0, address, PAGE, 0])?;
    Ok((id, address))
}

/// Imports a semaphore that a file holds.
pub fn semaphore(d: &Driver) -> Outcome<u64> {
    const TIMELINE: u64 = 9;
    made_by(d, "cuImportExternalSemaphore", &[place(&[TIMELINE, file(8)?])])
}

/// Returns a descriptor of memory that another API could have made.
fn file(bytes: usize) -> Outcome<u64> {
    // SAFETY: a C string.
    let file = unsafe { libc::memfd_create(c"shared".as_ptr(), 0) };
    // SAFETY: the descriptor is this program's, until the driver takes it.
    let sized = unsafe { libc::ftruncate(file, bytes as libc::off_t) };
    if sized == 0 { Ok(file as u64) } else { Err(-1) }
}
