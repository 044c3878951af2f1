//! Counts in the ledger everything submitted to the driver, by the program or by the library.

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::CuResult;
use crate::ordering::observers;
use crate::state::barriers::LEDGER;
use crate::state::thread;
use crate::test_delay::test_delay;

/// What `counted` does without `Rule::CountedBeforeWatched`.
#[cold]
fn watch_before_count() {
    observers::watch_submission();
    test_delay(Rule::CountedBeforeWatched);
}

/// Runs `call`, which submits work, or an order between works. `host_visible` means that the host
/// could see its effect without synchronizing.
#[inline(always)]
pub(crate) fn counted(host_visible: bool, call: impl FnOnce() -> CuResult) -> CuResult {
    let lane = thread::lane_of_submission();
    let counts_first = rule_holds(Rule::CountedBeforeWatched);
    if !counts_first {
        watch_before_count();
    }
    LEDGER.begin(host_visible, lane);
    // After the count: a thread that begins to watch finds a submission that was not watched.
    if counts_first {
        observers::watch_submission();
    }
    test_delay(Rule::ElisionNeedsEnded);
    test_delay(Rule::CoverNeedsSeen);
    test_delay(Rule::VisibleWorkMarksBothSides);
    let code = call();
    LEDGER.end(host_visible, lane);
    code
}
