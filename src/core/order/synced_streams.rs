//! Which streams are known to be behind which barrier of a context, where each stream waits for
//! itself (`deferral`). What is not known only costs a wait more, so this remembers so many streams
//! as it has places for.

use crate::order::pending::BarrierNumber;
use crate::rules::{Rule, rule_holds};

const PLACES: usize = 64;

/// By stream, as `DeferralState` names it. Under the gate of the context.
#[derive(Clone, Copy, Debug)]
pub struct SyncedStreams([(u64, BarrierNumber); PLACES]);

impl SyncedStreams {
    /// Nothing is known.
    pub const fn new() -> SyncedStreams {
        SyncedStreams([(0, BarrierNumber(0)); PLACES])
    }

    /// Whether all later work of the stream comes behind this barrier. Those up to it are included
    /// (D2).
    pub fn is(&self, stream: u64, number: BarrierNumber) -> bool {
        let (last, behind) = self.0[place(stream)];
        let newer = behind >= number || !rule_holds(Rule::StreamsWaitForTheNewest);
        last == stream && behind != BarrierNumber(0) && newer
    }

    /// The stream waits for this barrier.
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
