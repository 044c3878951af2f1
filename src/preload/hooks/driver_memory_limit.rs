//! Calls that create or end device memory of the driver, under a limit (`driver_memory/limits.rs`):
//! their bytes, as far as the arguments say, are claimed before the driver is asked.

use crate::cache::{pools, shortage};
use crate::config;
use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::{AllocationProperties, CuResult, OUT_OF_MEMORY, PoolHandle, SUCCESS};
use crate::driver_memory::claims;
use crate::driver_memory::held_bytes::{self, Ending, Key};
use crate::driver_memory::limits::Claim;
use crate::functions::{Function, id};
use crate::hooks::{beside, driver_memory_sizes};
use crate::record::capture;

/// Wraps a call of class `record`. A call that the limit forbids does not reach the driver and writes
/// nothing.
#[cold]
pub fn around(
    function: &'static Function,
    words: &[usize],
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let (mut claimed, mut ending) = (Ok(None), Ending::default());
    let mut pitch_bytes = 0;
    beside(function, || {
        if is_sound(function, words) {
            claimed = before(function, words);
            if function.id == id::cuMemAllocPitch_v2 {
                // SAFETY: the program's place for the pitch, which is not null.
                pitch_bytes = unsafe { *(words[1] as *const u64) };
            }
        }
        ending = ends(function, words);
    });
    let Ok(claim) = claimed else { return OUT_OF_MEMORY };
    let mut code = call();
    if code != SUCCESS {
        beside(function, || ending.undone());
        return code;
    }
    beside(function, || {
        ending.done();
        code = after(function, words, claim, pitch_bytes);
    });
    code
}

/// Whether the arguments are valid: otherwise the driver refuses the call whatever the limit.
fn is_sound(function: &Function, words: &[usize]) -> bool {
    const PAGE_BYTES: usize = 2 << 20;
    match function.id {
        id::cuMemAllocPitch_v2 => {
            let places = words[0] != 0 && words[1] != 0;
            places && words[2] != 0 && words[3] != 0 && matches!(words[4] as u32, 4 | 8 | 16)
        }
        id::cuMemCreate => {
            let sized = words[1] != 0 && words[1].is_multiple_of(PAGE_BYTES);
            words[0] != 0 && words[2] != 0 && words[3] == 0 && sized
        }
        id::cuArrayCreate_v2 | id::cuArray3DCreate_v2 | id::cuMipmappedArrayCreate => {
            words[0] != 0 && words[1] != 0
        }
        _ => true,
    }
}

/// The driver has written a handle of physical memory to this place: one more reference.
pub fn retained(function: &'static Function, place: usize) {
    if config::limits() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *(place as *const u64) };
        beside(function, || held_bytes::retained(handle));
    }
}

/// Claims linear memory that the driver serves, from a pool if one is named. `Ok(None)`: nothing to
/// claim; `Err`: the limit forbids it, and that was reported.
pub fn claim_linear(
    pool: Option<PoolHandle>,
    bytes: u64,
    reported: Reported,
) -> Result<Option<Claim>, CuResult> {
    let of_pool = |pool| {
        let noted = held_bytes::device_of_pool(pool);
        noted.or_else(|| pools::device_of_default(pool).map(Some))
    };
    match pool.and_then(of_pool) {
        Some(None) => Ok(None),
        Some(Some(device)) => claim(device, bytes, reported),
        None => match current_device() {
            Some(device) => claim(device, bytes, reported),
            None => Ok(None), // the driver reports the error
        },
    }
}

/// Where it is reported that the limit was in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reported {
    Here,
    ByCaller,
}

/// The driver has served it. Memory from a pool outlives the context in which it was requested.
pub fn hold_linear(address: u64, claim: Option<Claim>, of_pool: bool) {
    if let Some(claim) = claim {
        let current = || lookup::current().map_or(0, |context| context.id);
        let context_id = if of_pool { 0 } else { current() };
        held_bytes::hold(Key::Memory(address), claim, context_id);
    }
}

fn before(function: &Function, words: &[usize]) -> Result<Option<Claim>, CuResult> {
    let (device, bytes) = match function.id {
        // The pitch is not known yet; it is at least the width.
        id::cuMemAllocPitch_v2 => {
            (current_device(), (words[2] as u64).saturating_mul(words[3] as u64))
        }
        id::cuMemCreate if words[2] != 0 => {
            // SAFETY: the program's struct, which the driver reads as well.
            let properties = unsafe { &*(words[2] as *const AllocationProperties) };
            (properties.location.device(), words[1] as u64)
        }
        id::cuArrayCreate_v2 | id::cuArray3DCreate_v2 | id::cuMipmappedArrayCreate
            if words[1] != 0 =>
        {
            // SAFETY: the program's descriptor, which the driver reads as well.
            (current_device(), unsafe { driver_memory_sizes::of_array(function.base, words) })
        }
        _ => (None, 0),
    };
    match device {
        Some(device) if bytes != 0 => claim(device, bytes, Reported::Here),
        _ => Ok(None),
    }
}

/// Removed before the driver's call, while no other object can have the number.
fn ends(function: &Function, words: &[usize]) -> Ending {
    let first = words[0] as u64;
    match function.id {
        id::cuArrayDestroy | id::cuMipmappedArrayDestroy => held_bytes::ends(Key::Array(first)),
        id::cuMemRelease => held_bytes::releases(first),
        id::cuMemUnmap => held_bytes::unmaps(first, words[1] as u64),
        _ => Ending::default(),
    }
}

fn after(
    function: &Function,
    words: &[usize],
    claim: Option<Claim>,
    pitch_before: u64,
) -> CuResult {
    if function.id == id::cuMemMap {
        held_bytes::mapped(words[0] as u64, words[3] as u64);
    }
    let Some(claim) = claim else { return SUCCESS };
    // SAFETY: the driver has accepted the call and written what it made.
    let made = unsafe { *(words[0] as *const u64) };
    let context_id = lookup::current().map_or(0, |context| context.id);
    match function.id {
        id::cuMemCreate => held_bytes::created(made, claim),
        id::cuMemAllocPitch_v2 => return pitched(words, made, claim, context_id, pitch_before),
        _ => held_bytes::hold(Key::Array(made), claim, context_id),
    }
    SUCCESS
}

/// Only now the pitch is known, and whether the limit allows the memory.
fn pitched(
    words: &[usize],
    made: u64,
    mut claim: Claim,
    context_id: u64,
    pitch_before: u64,
) -> CuResult {
    // SAFETY: the driver has written the pitch.
    let pitch_bytes = unsafe { *(words[1] as *const u64) };
    let bytes = pitch_bytes.saturating_mul(words[3] as u64);
    if claims::grow_making_room(&mut claim, bytes) {
        held_bytes::hold(Key::Memory(made), claim, context_id);
        return SUCCESS;
    }
    drop(claim);
    api::relaxed(|| api::mem_free(made));
    // SAFETY: the program's places, which the driver has just written.
    unsafe {
        *(words[0] as *mut u64) = 0;
        *(words[1] as *mut u64) = pitch_before;
    }
    report(bytes);
    OUT_OF_MEMORY
}

fn claim(device: i32, bytes: u64, reported: Reported) -> Result<Option<Claim>, CuResult> {
    let claimed = claims::claim_making_room(device, bytes);
    if claimed.is_none() && reported == Reported::Here {
        report(bytes);
    }
    claimed.map(Some).ok_or(OUT_OF_MEMORY)
}

/// Reports that the limit was the reason, since the device has memory.
fn report(bytes: u64) {
    if let Ok(context) = lookup::current() {
        shortage::happened(context, bytes, capture::of_allocation());
    }
}

fn current_device() -> Option<i32> {
    let mut device = 0;
    (api::ctx_get_device(&mut device) == SUCCESS).then_some(device)
}
