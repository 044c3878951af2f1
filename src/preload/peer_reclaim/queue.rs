//! Requests that wait for GPU memory instead of failing: `wait_for_memory_s`.
//!
//! Note [Queue]. The waiting requests form a queue, across all peer processes. Each process
//! repeatedly writes its first waiter for each GPU into its file. A request tries only while no
//! earlier waiter is known, so small requests that also wait do not starve a large one. A request
//! that the driver can serve at once does not queue.
//!
//! A process that was stopped or killed does not write, and the others stop waiting for it. The
//! option bounds each wait, so two processes that need each other's memory both end with the
//! driver's error.

use std::sync::Mutex;
use std::time::Duration;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::control::GpuId;
use cachealloc_statistics::page::{Waiter, Waiters};

use crate::clock::now_ns;
use crate::lock::lock;
use crate::peer_reclaim::pages::Peer;
use crate::peer_reclaim::{is_end, may_ask};
use crate::process::library_thread;
use crate::statistics::live;
use crate::thread_state::with_thread_state_saved;

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Age of its last update at which a waiter counts as stopped or gone.
const GONE_AFTER: Duration = Duration::from_secs(2);

/// Waiters of this process, the earliest first.
static OWN: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

/// A place in the queue, until it is dropped.
pub(super) struct Place {
    gpu: GpuId,
    since_ns: u64,
}

impl Place {
    /// Takes a place after all others. Without the GPU's id, only requests of this process queue.
    pub(super) fn last(gpu: Option<GpuId>) -> Place {
        let mut own = lock(&OWN);
        let newest_ns = own.last().map_or(0, |waiter| waiter.since_ns);
        let since_ns = now_ns().max(newest_ns + 1);
        let gpu = gpu.unwrap_or_default();
        own.push(Waiter { gpu, since_ns, looked_ns: since_ns });
        Place { gpu, since_ns }
    }

    /// Waits until this request may try again. Returns `false` if it has waited for `longest`, or
    /// if the process ends.
    pub(super) fn comes(&self, longest: Duration) -> bool {
        loop {
            let waited = Duration::from_nanos(now_ns().saturating_sub(self.since_ns));
            let left = longest.checked_sub(waited).filter(|left| !left.is_zero());
            let Some(left) = left.filter(|_| !is_end()) else { return false };
            library_thread::sleep(LOOK_EVERY.min(left));
            if self.is_first() || !rule_holds(Rule::WaitersQueue) {
                return true;
            }
        }
    }

    fn is_first(&self) -> bool {
        let first_ns = {
            let mut own = lock(&OWN);
            tell(&mut own);
            own.iter().find(|waiter| waiter.gpu == self.gpu).map(|waiter| waiter.since_ns)
        };
        first_ns == Some(self.since_ns) && !self.is_behind_others()
    }

    fn is_behind_others(&self) -> bool {
        if !may_ask() || self.gpu == GpuId::default() {
            return false;
        }
        let now = now_ns();
        let waiters = Peer::all().into_iter().filter_map(|other| other.waiter(self.gpu));
        // The clock of the other process may differ, in a separate time namespace.
        let mut looking =
            waiters.filter(|waiter| now.abs_diff(waiter.looked_ns) < GONE_AFTER.as_nanos() as u64);
        looking.any(|waiter| waiter.since_ns < self.since_ns)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        with_thread_state_saved(|| {
            let mut own = lock(&OWN);
            own.retain(|waiter| waiter.since_ns != self.since_ns);
            tell(&mut own);
        });
    }
}

/// Publishes the first waiters of this process to the other processes.
fn tell(own: &mut [Waiter]) {
    if !may_ask() {
        return;
    }
    own.iter_mut().for_each(|waiter| waiter.looked_ns = now_ns());
    let mut told = Waiters::default();
    let firsts = own.iter().enumerate().filter(|(index, waiter)| {
        let told_of_all = rule_holds(Rule::EachGpuHasAFirst);
        *index == 0 || told_of_all && own[..*index].iter().all(|other| other.gpu != waiter.gpu)
    });
    told.iter_mut().zip(firsts).for_each(|(place, (_, waiter))| *place = *waiter);
    live::wait(&told);
}
