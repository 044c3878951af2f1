//! What is put into the driver stands in the ledger, whether the program did it or we did for it.

use cachealloc_core::rules::Rule;

use crate::driver::sys::CuResult;
use crate::ordering::{LEDGER, observers, widen};
use crate::process::thread::{self, Thread};

/// `call` puts work, or an order between works, into the driver. `look`: the host could see its
/// effect without synchronising.
#[inline(always)]
pub fn counted(look: bool, call: impl FnOnce() -> CuResult) -> CuResult {
    observers::watch_submission();
    let lane = thread::with(Thread::lane);
    LEDGER.begin(look, lane);
    widen(Rule::SkipNeedsEnded);
    widen(Rule::CoverNeedsSeen);
    widen(Rule::LookMarksBothSides);
    let code = call();
    LEDGER.end(look, lane);
    code
}
