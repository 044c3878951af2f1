//! Calls that create or end memory of the driver (class `record` in the function list): translates
//! their arguments into requests to the table (`driver_memory/table.rs`).

pub(crate) mod array_bytes;

use crate::cache::release;
use crate::driver::sys::{AllocationProperties, CuError, CuResult};
use crate::driver::{api, changes};
use crate::driver_memory::ending;
use crate::driver_memory::ending::Ending;
use crate::driver_memory::notify::{Heard, Named};
use crate::driver_memory::table;
use crate::driver_memory::table::Key;
use crate::functions::{Function, id};
use crate::hooks::{beside, common, out_of_memory};
use crate::peer_reclaim::ReclaimRequest;
use crate::process::bypass;
use crate::process::bypass::Failing;
use crate::record::{HOST, capture};
use crate::serving;
use crate::serving::{ChargedRequest, EndsBy, MemoryKind, Wanted};

/// A call of class `record` that is about to be made.
enum Call {
    Makes(Option<ChargedRequest>),
    MakesPitched(Option<ChargedRequest>),
    /// Registers host memory of the program with the device.
    Registers(Option<ChargedRequest>),
    Maps,
    Ends(Ending),
}

impl Call {
    /// Returns whether the call adds or removes device memory that the library counts.
    fn changes_device(&self) -> bool {
        match self {
            Call::Makes(asked) | Call::MakesPitched(asked) => {
                asked.as_ref().is_some_and(ChargedRequest::is_on_device)
            }
            Call::Registers(_) | Call::Maps => false,
            Call::Ends(_) => true,
        }
    }
}

/// Runs the hook of a call of class `record`. A call that the limit forbids does not reach the
/// driver and writes nothing.
#[inline]
pub(crate) fn around(
    function: &'static Function,
    words: &[usize],
    mut real: impl FnMut() -> CuResult,
) -> CuResult {
    if !bypass::is_caching() {
        return real();
    }
    let mut begun = Ok(None);
    beside(function, || {
        begun = begin(function, words);
        if let Ok(Some(Call::Makes(Some(asked)) | Call::MakesPitched(Some(asked)))) = &begun {
            asked.make_room();
        }
    });
    let mut call = match begun {
        Ok(Some(call)) => call,
        Ok(None) => return real(),
        Err(error) => return Err(error),
    };
    let call_changes = call.changes_device();
    let mut real = || if call_changes { changes::during(&mut real) } else { real() };
    let (mut code, mut reclaim) = (real(), ReclaimRequest::default());
    while code.is_err() && common::in_guard(function, || try_reclaim(&mut call, &mut reclaim, code))
    {
        code = real();
    }
    let mut heard = Heard::Nothing;
    beside(function, || (code, heard) = end(call, words, code));
    if code.is_ok() {
        heard.tell();
    }
    if code.is_ok()
        && bypass::has_failures(Failing::Allocation)
        && let Some(bytes) = out_of_memory::asked_bytes(function, words)
    {
        return out_of_memory::got(function, bytes, code);
    }
    code
}

/// Returns whether other processes released memory for a request that the driver refused.
fn try_reclaim(call: &mut Call, reclaim: &mut ReclaimRequest, code: CuResult) -> bool {
    let (Call::Makes(asked) | Call::MakesPitched(asked)) = call else { return false };
    asked.as_mut().is_some_and(|asked| asked.try_reclaim(reclaim, code))
}

/// Classifies the call, and charges its memory. Returns `None` if it does not change the memory
/// that the library records.
///
/// Calls with invalid arguments are not charged: the driver refuses them, whatever the limit.
///
/// # Errors
///
/// Fails if the limit forbids the allocation.
fn begin(function: &Function, words: &[usize]) -> CuResult<Option<Call>> {
    const PAGE_BYTES: usize = 2 << 20;
    let word = |index: usize| words[index] as u64;
    let ask = |kind, bytes, counts| serving::ask(Wanted { kind, bytes, counts });
    let call = match function.id {
        id::cuMemAllocManaged => Call::Makes(ask(MemoryKind::Managed, word(1), false)?),
        id::cuMemAllocPitch_v2 if words[0] != 0 && words[1] != 0 => {
            // The pitch is not known yet; it is at least the width.
            let bytes = word(2).saturating_mul(word(3));
            let counts = bytes != 0 && matches!(words[4] as u32, 4 | 8 | 16);
            Call::MakesPitched(ask(MemoryKind::Linear, bytes, counts)?)
        }
        id::cuMemCreate => {
            // SAFETY: null, or the program's struct, which the driver reads as well.
            let properties = unsafe { (words[2] as *const AllocationProperties).as_ref() };
            let Some(properties) = properties else { return Ok(None) };
            let device = properties.location.device();
            // The memory of a device without a number is not counted.
            if device.is_none() && !properties.location.may_be_on_host() {
                return Ok(None);
            }
            let sized = words[1] != 0 && words[1].is_multiple_of(PAGE_BYTES);
            let counts = device.is_some() && words[0] != 0 && words[3] == 0 && sized;
            Call::Makes(ask(MemoryKind::Physical(device.unwrap_or(HOST)), word(1), counts)?)
        }
        id::cuArrayCreate_v2 | id::cuArray3DCreate_v2 | id::cuMipmappedArrayCreate
            if words[0] != 0 && words[1] != 0 =>
        {
            // SAFETY: the program's descriptor, which the driver reads as well.
            let bytes = unsafe { array_bytes::of(function.id, words) };
            Call::Makes(ask(MemoryKind::Array, bytes, bytes != 0)?)
        }
        id::cuMemMap => Call::Maps,
        id::cuMemHostAlloc | id::cuMemAllocHost_v2 => {
            Call::Makes(ask(MemoryKind::Host, word(1), false)?)
        }
        id::cuMemHostRegister | id::cuMemHostRegister_v2 => {
            Call::Registers(ask(MemoryKind::Registered, word(1), false)?)
        }
        // Pinned memory may be kept for reuse, which its own hook decides (`host_memory::free`).
        id::cuMemHostUnregister => {
            Call::Ends(serving::wait_and_end(Key::Memory(word(0)), EndsBy::Unregister))
        }
        id::cuArrayDestroy | id::cuMipmappedArrayDestroy => {
            Call::Ends(serving::wait_and_end(Key::Array(word(0)), EndsBy::DestroyArray))
        }
        id::cuMemRelease => Call::Ends(ending::releases(word(0))),
        id::cuMemUnmap => Call::Ends(ending::unmaps(word(0), word(1))),
        _ => return Ok(None),
    };
    Ok(Some(call))
}

/// Notes the result of a call after the driver has answered and written its output. Returns the
/// notification for memory hooks.
fn end(call: Call, words: &[usize], code: CuResult) -> (CuResult, Heard) {
    // SAFETY: the driver has accepted the call, so it has written the address or the handle there.
    let made = || unsafe { *(words[0] as *const u64) };
    let heard = match call {
        Call::Ends(ending) => {
            let heard = Heard::ended(&ending);
            ending.finish(code);
            heard
        }
        _ if code.is_err() => Heard::Nothing,
        Call::Makes(Some(asked)) => Heard::made(asked.served(made())),
        Call::Registers(Some(asked)) => Heard::made(asked.served(words[0] as u64)),
        // Memory hooks observe it as linear memory, around the whole call.
        Call::MakesPitched(Some(asked)) => return (pitched(words, made(), asked), Heard::Nothing),
        Call::Makes(None) | Call::MakesPitched(None) | Call::Registers(None) => Heard::Nothing,
        Call::Maps => {
            let [address, bytes, handle] = [0, 1, 3].map(|at| words[at] as u64);
            table::mapped(address, bytes, handle, capture::of_allocation());
            Heard::made(Named::Place(Key::Memory(address)))
        }
    };
    (code, heard)
}

/// Charges the real size, since only now the pitch is known, and frees the memory again if the
/// limit forbids it.
fn pitched(words: &[usize], made: u64, mut asked: ChargedRequest) -> CuResult {
    // SAFETY: the driver has written the pitch.
    let pitch_bytes = unsafe { *(words[1] as *const u64) };
    let bytes = pitch_bytes.saturating_mul(words[3] as u64);
    if asked.grow_to(bytes) {
        asked.served(made);
        return Ok(());
    }
    drop(asked);
    let _ = api::relaxed(|| release::untouched(made, bytes));
    // SAFETY: the program's place, which the driver has just written. On a refusal the pitch stays
    // in its own place.
    unsafe { *(words[0] as *mut u64) = 0 };
    Err(CuError::OUT_OF_MEMORY)
}
