//! How long unused memory is kept.
//!
//! Note [Decay]. A cache that only grows holds its peak for ever, and each size that it will never
//! see again. So the caller makes passes in equal intervals, and memory that nothing has used for
//! three passes is released to the driver: a program that takes its memory again at each step keeps
//! it.
//!
//! Other programs need their memory later: an evaluation every minute, a notebook whose reader
//! thinks. Releasing their memory and reserving it again would cost calls in each round, for ever.
//! So released memory is remembered by its size. If at least half of it is requested again, memory
//! is kept from then on for half as long again as it was unused this time. A round of up to 400
//! passes pays once; a longer one pays once in a round, which is little for so long a time.
//!
//! A program whose sizes grow requests new ones, which teaches nothing: its old sizes are released
//! all the time.

use alloc::collections::{BTreeMap, VecDeque};

/// A point in the time of an allocator, with which later ones are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IdleEpoch(pub(crate) u64);

impl IdleEpoch {
    /// Before anything.
    pub const NEVER: IdleEpoch = IdleEpoch(0);
}

/// Number of passes without use after which memory is released, at the least.
const PASSES_LEAST: u64 = 3;
/// The most passes for which unused memory is kept, whatever is requested again.
const PASSES_MOST: u64 = 600;
/// Number of passes for which released memory is remembered.
const PASSES_REMEMBERED: u64 = 900;
/// Number of sizes that are remembered. Others count as never requested again.
const SIZES_MAX: usize = 512;

#[derive(Clone, Default)]
pub(crate) struct Decay {
    /// One for each pass, the newest last.
    marks: VecDeque<IdleEpoch>,
    passes_count: u64,
    /// Number of passes for which memory is kept unused; 0 if only the minimum is known.
    learned_count: u64,
    gone: Option<Gone>,
}

/// Memory that was released lately.
#[derive(Clone)]
struct Gone {
    /// The pass at which its release began.
    at_pass: u64,
    /// Number of passes for which it had been unused then.
    unused_count: u64,
    bytes: u64,
    again_bytes: u64,
    /// Number of segments of each size that were not requested again.
    segments: BTreeMap<u64, u64>,
    /// Bytes released in arenas, where any memory serves as well.
    mapped_bytes: u64,
}

/// The result of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    /// The current epoch.
    pub mark: IdleEpoch,
    /// Memory that is idle since this epoch is released, as soon as the work with it is complete.
    pub due: Option<IdleEpoch>,
}

impl Decay {
    /// Makes a pass at this epoch. `unused_count` is the number of passes for which unused memory
    /// is kept; `None` as Note [Decay] describes. Returns the epoch since which idle memory is
    /// released, if any.
    pub(crate) fn pass(&mut self, mark: IdleEpoch, unused_count: Option<u64>) -> Option<IdleEpoch> {
        self.passes_count += 1;
        let is_over = |gone: &mut Gone| self.passes_count > gone.at_pass + PASSES_REMEMBERED;
        let _ = self.gone.take_if(is_over);
        let unused_count = unused_count.unwrap_or(self.kept_count()) as usize;
        self.marks.push_back(mark);
        while self.marks.len() > unused_count + 1 {
            self.marks.pop_front();
        }
        if self.marks.len() > unused_count { self.marks.front().copied() } else { None }
    }

    /// Returns the epoch of the last pass.
    pub(crate) fn newest(&self) -> Option<IdleEpoch> {
        self.marks.back().copied()
    }

    fn kept_count(&self) -> u64 {
        self.learned_count.max(PASSES_LEAST)
    }

    /// Records that an unused segment was released.
    pub(crate) fn segment_went(&mut self, bytes: u64) {
        let gone = self.gone();
        gone.bytes += bytes;
        if gone.segments.len() < SIZES_MAX || gone.segments.contains_key(&bytes) {
            *gone.segments.entry(bytes).or_default() += 1;
        }
    }

    /// Records that unused mappings were released.
    pub(crate) fn mapping_went(&mut self, bytes: u64) {
        let gone = self.gone();
        gone.bytes += bytes;
        gone.mapped_bytes += bytes;
    }

    fn gone(&mut self) -> &mut Gone {
        let unused_count = self.marks.len() as u64 - u64::from(!self.marks.is_empty());
        let at_pass = self.passes_count;
        self.gone.get_or_insert_with(|| Gone {
            at_pass,
            unused_count,
            bytes: 0,
            again_bytes: 0,
            segments: BTreeMap::new(),
            mapped_bytes: 0,
        })
    }

    /// Records that the driver has provided a segment.
    pub(crate) fn segment_came(&mut self, bytes: u64) {
        let Some(gone) = &mut self.gone else { return };
        let Some(count) = gone.segments.get_mut(&bytes).filter(|count| **count > 0) else { return };
        *count -= 1;
        gone.again_bytes += bytes;
        self.learn();
    }

    /// Records that the driver has mapped memory.
    pub(crate) fn mapping_came(&mut self, bytes: u64) {
        let Some(gone) = &mut self.gone else { return };
        let again_bytes = bytes.min(gone.mapped_bytes);
        gone.mapped_bytes -= again_bytes;
        gone.again_bytes += again_bytes;
        self.learn();
    }

    fn learn(&mut self) {
        let is_again = |gone: &mut Gone| gone.again_bytes >= gone.bytes / 2;
        let Some(gone) = self.gone.take_if(is_again) else { return };
        let unused_count = self.passes_count - gone.at_pass + gone.unused_count;
        let kept_count = (unused_count + unused_count / 2 + 1).min(PASSES_MOST);
        self.learned_count = self.learned_count.max(kept_count);
    }
}
