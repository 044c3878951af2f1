//! The launch of a kernel to which nothing applies but the counts: the shortest path of the hottest
//! call, in steps between which `exports/short_launch.rs` jumps with all arguments in their places.
//! On other processors these are not all in the same places, and each launch takes the path of
//! every launch.

use cachealloc_core::order::Lane;

use crate::driver::sys::{CuCode, CuError, StreamHandle, code};
use crate::functions::Function;
use crate::gate;
use crate::hooks::common;
use crate::hooks::{Real, note_stream, out_of_memory, submitted};
use crate::ordering::observers;
use crate::serving::refused_call::MayBeCaptured;
use crate::state::barriers::LEDGER;
use crate::state::thread;

/// How a launch has begun.
pub(crate) enum Begun {
    /// Not yet: it needs more than the shortest path.
    Not,
    /// Counted in the shared lane, and may go to its stream.
    Plainly,
    /// Counted, but something has to be done before it goes to its stream.
    Unusually,
}

/// Begins the launch of a kernel on the shortest path of a thread that does not own its lane:
/// nothing applies to it but the counts.
#[inline(always)]
pub(crate) fn begin(stream: impl Fn() -> u64) -> Begun {
    if !gate::kernels_are_plain() {
        return Begun::Not;
    }
    if thread::chosen_lane() != Some(Lane::Shared) {
        return Begun::Not;
    }
    LEDGER.begin(false, Lane::Shared);
    // After the count (`submissions::counted`).
    if observers::are_submissions_watched() || !LEDGER.deferral.can_proceed(stream()) {
        return Begun::Unusually;
    }
    Begun::Plainly
}

/// Ends a launch that has succeeded, on the shortest path.
#[inline(always)]
pub(crate) fn end(stream: u64, lane: Lane) -> CuCode {
    LEDGER.end(false, lane);
    note_stream(stream as StreamHandle);
    code(Ok(()))
}

/// Continues a launch that was counted as begun, in the lane of this thread.
#[inline(always)]
pub(crate) fn begun(function: &'static Function, words: &[usize], real: impl Real) -> CuCode {
    let lane = thread::lane();
    observers::watch_submission();
    match real() {
        Ok(()) => {
            LEDGER.end(false, lane);
            // SAFETY: the arguments are those of the function.
            unsafe { submitted(function, words) };
            code(Ok(()))
        }
        Err(error) => failed(function, words, lane, error, real),
    }
}

/// Ends a launch that has failed, after the repetitions that may help. Inlined, because some
/// programs make launches that are refused at once, and code in one place is found sooner.
#[inline(always)]
pub(crate) fn failed(
    function: &'static Function,
    words: &[usize],
    lane: Lane,
    error: CuError,
    real: impl Real,
) -> CuCode {
    let done = if error == CuError::OUT_OF_MEMORY {
        common::failed_once(function, MayBeCaptured::Perhaps, error, real)
    } else {
        common::note_failed(function, error);
        Err(error)
    };
    LEDGER.end(false, lane);
    // SAFETY: the arguments are those of the function.
    unsafe { submitted(function, words) };
    match done {
        Err(CuError::OUT_OF_MEMORY) => {
            code(out_of_memory::answered(function, words, CuError::OUT_OF_MEMORY))
        }
        done => code(done),
    }
}
