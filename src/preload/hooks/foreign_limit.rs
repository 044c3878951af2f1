//! Calls that make or end device memory of the driver's own, under a limit (`runtime/limits.rs`):
//! their bytes are claimed before the driver is asked, as far as the arguments tell.

use crate::config;
use crate::driver::api;
use crate::driver::sys::{CuResult, OUT_OF_MEMORY, PoolHandle, SUCCESS};
use crate::functions::{Function, id};
use crate::hooks::{beside, foreign_sizes};
use crate::record::capture;
use crate::runtime::foreign_bytes::{self, Ending, Key};
use crate::runtime::limits::{self, Claim};
use crate::runtime::{contexts, pools, shortage};

/// Around a call of class `record`. A call that the limit forbids does not reach the driver, and
/// writes nothing.
#[cold]
pub fn around(
    function: &'static Function,
    words: &[usize],
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let (mut claimed, mut ending) = (Ok(None), Ending::default());
    beside(function, || {
        claimed = before(function, words);
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
        code = after(function, words, claim);
    });
    code
}

/// The driver has written the handle of physical memory to this place: one reference more.
pub fn retained(function: &'static Function, place: usize) {
    if config::limits() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { *(place as *const u64) };
        beside(function, || foreign_bytes::retained(handle));
    }
}

/// Claims plain memory that the driver serves itself, from a pool if one is named. `Ok(None)`: there
/// is nothing to claim; `Err`: the limit forbids it, and the user was told.
pub fn claim_plain(pool: Option<PoolHandle>, bytes: u64) -> Result<Option<Claim>, CuResult> {
    let of_pool = |pool| {
        let noted = foreign_bytes::device_of_pool(pool);
        noted.or_else(|| pools::device_of_default(pool).map(Some))
    };
    match pool.and_then(of_pool) {
        Some(None) => Ok(None),
        Some(Some(device)) => claim(device, bytes),
        None => match current_device() {
            Some(device) => claim(device, bytes),
            None => Ok(None), // the driver says what is wrong
        },
    }
}

/// The driver has served it.
pub fn hold_plain(address: u64, claim: Option<Claim>) {
    if let Some(claim) = claim {
        let context_id = contexts::current().map_or(0, |context| context.id);
        foreign_bytes::hold(Key::Memory(address), claim, context_id);
    }
}

fn before(function: &Function, words: &[usize]) -> Result<Option<Claim>, CuResult> {
    let (device, bytes) = match function.id {
        // The pitch is not known yet; it is no less than the width.
        id::cuMemAllocPitch_v2 => {
            (current_device(), (words[2] as u64).saturating_mul(words[3] as u64))
        }
        id::cuMemCreate if words[2] != 0 => {
            // SAFETY: the program's struct: type, handle types, type of the location, its number.
            let (kind, device) = unsafe {
                let properties = words[2] as *const i32;
                (*properties.add(2), *properties.add(3))
            };
            ((kind == LOCATION_DEVICE).then_some(device), words[1] as u64)
        }
        id::cuArrayCreate_v2 | id::cuArray3DCreate_v2 | id::cuMipmappedArrayCreate
            if words[1] != 0 =>
        {
            // SAFETY: the program's descriptor, which the driver reads as well.
            (current_device(), unsafe { foreign_sizes::of_array(function.base, words) })
        }
        _ => (None, 0),
    };
    match device {
        Some(device) if bytes != 0 => claim(device, bytes),
        _ => Ok(None),
    }
}

/// Taken out before the driver's call, when nobody else can have the same number yet.
fn ends(function: &Function, words: &[usize]) -> Ending {
    let first = words[0] as u64;
    match function.id {
        id::cuArrayDestroy | id::cuMipmappedArrayDestroy => foreign_bytes::ends(Key::Array(first)),
        id::cuMemRelease => foreign_bytes::releases(first),
        id::cuMemUnmap => foreign_bytes::unmaps(first, words[1] as u64),
        _ => Ending::default(),
    }
}

fn after(function: &Function, words: &[usize], claim: Option<Claim>) -> CuResult {
    if function.id == id::cuMemMap {
        foreign_bytes::mapped(words[0] as u64, words[3] as u64);
    }
    let Some(claim) = claim else { return SUCCESS };
    // SAFETY: the driver has accepted the call and written what it made.
    let made = unsafe { *(words[0] as *const u64) };
    let context_id = contexts::current().map_or(0, |context| context.id);
    match function.id {
        id::cuMemCreate => foreign_bytes::created(made, claim),
        id::cuMemAllocPitch_v2 => return pitched(words, made, claim, context_id),
        _ => foreign_bytes::hold(Key::Array(made), claim, context_id),
    }
    SUCCESS
}

/// Only now the pitch is known, and with it whether the limit allows the memory.
fn pitched(words: &[usize], made: u64, mut claim: Claim, context_id: u64) -> CuResult {
    // SAFETY: the driver has written the pitch.
    let pitch_bytes = unsafe { *(words[1] as *const u64) };
    let bytes = pitch_bytes.saturating_mul(words[3] as u64);
    if claim.grow_to(bytes) {
        foreign_bytes::hold(Key::Memory(made), claim, context_id);
        return SUCCESS;
    }
    drop(claim);
    api::relaxed(|| api::mem_free(made));
    // SAFETY: the program's place, which the driver has just written.
    unsafe { *(words[0] as *mut u64) = 0 };
    report(bytes);
    OUT_OF_MEMORY
}

fn claim(device: i32, bytes: u64) -> Result<Option<Claim>, CuResult> {
    let claimed = limits::claim_making_room(device, bytes);
    if claimed.is_none() {
        report(bytes);
    }
    claimed.map(Some).ok_or(OUT_OF_MEMORY)
}

/// The user must know that it was the limit: the device has memory.
fn report(bytes: u64) {
    if let Ok(context) = contexts::current() {
        shortage::happened(context, bytes, capture::of_allocation());
    }
}

fn current_device() -> Option<i32> {
    let mut device = 0;
    (api::ctx_get_device(&mut device) == SUCCESS).then_some(device)
}

const LOCATION_DEVICE: i32 = 1;
