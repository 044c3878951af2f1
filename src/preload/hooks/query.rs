//! "Is it done?" asked after a free that did not wait: natively the work before the free is over.

use crate::driver::sys::{CuResult, NOT_READY};
use crate::functions::Function;
use crate::hooks::guarded_with;
use crate::runtime::{bypass, debts};

/// A query that answers NOT_READY waits for the barrier of this thread's own last free and asks
/// again; never in other threads (hazards 3 and 29).
#[inline]
pub fn ask_again(
    function: &'static Function,
    _words: &[usize],
    real: impl Fn() -> CuResult,
) -> CuResult {
    let code = real();
    if code != NOT_READY || !bypass::is_on() {
        return code;
    }
    guarded_with(function, |thread| if debts::pay_own(thread) { real() } else { code }, || code)
}
