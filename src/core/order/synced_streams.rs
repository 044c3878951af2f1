//! The streams that have waited for a barrier of a context, where each stream waits for itself
//! (`deferral`). A forgotten stream only costs one more wait, so the table has a fixed number of
//! places.

use crate::order::pending::BarrierNumber;
use crate::rules::{Rule, rule_holds};

const PLACES: usize = 64;

/// The newest barrier that each stream has waited for, by stream as in `DeferralState`. The barrier
/// lock of the context protects it.
#[derive(Clone, Copy, Debug)]
pub struct SyncedStreams([(u64, BarrierNumber); PLACES]);

impl SyncedStreams {
    /// Returns an empty table.
    pub const fn new() -> SyncedStreams {
        SyncedStreams([(0, BarrierNumber(0)); PLACES])
    }

    /// Returns whether all later work of the stream is ordered after this barrier, and so after all
    /// earlier ones (D2).
    pub fn is(&self, stream: u64, number: BarrierNumber) -> bool {
        let (last, behind) = self.0[place(stream)];
        let newer = behind >= number || !rule_holds(Rule::StreamsWaitForTheNewest);
        last == stream && behind != BarrierNumber(0) && newer
    }

    /// Records that the stream waits for this barrier.
    pub fn waits(&mut self, stream: u64, number: BarrierNumber) {
        self.0[place(stream)] = (stream, number);
    }
}

impl Default for SyncedStreams {
    fn default() -> SyncedStreams {
        SyncedStreams::new()
    }
}

/// Handles are addresses: their high bits and their lowest ones hardly differ.
fn place(stream: u64) -> usize {
    (stream.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize
}
