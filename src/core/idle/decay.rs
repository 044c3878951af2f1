//! How long memory that nothing uses is kept.
//!
//! Note [Decay]. A cache that only grows holds its peak for ever, and each size that it will never
//! see again. So the caller passes by in equal intervals, and what nothing has used for three of
//! its passes goes back to the driver: a program that takes its memory again at each step keeps it.
//!
//! Others come back later: an evaluation every minute, a notebook whose reader thinks. Giving their
//! memory back and taking it again would cost calls in each round, for ever. So what went back is
//! remembered by its size. If at least half of it is asked for again, memory is kept from then on
//! for half as long again as it was unused this time. A round of up to 400 passes pays once; a
//! longer one pays once in a round, which is little for so long a time.
//!
//! A program whose sizes grow asks for new ones, which teaches nothing: its old sizes go back all
//! the time.

use alloc::collections::{BTreeMap, VecDeque};

/// A point in the time of an allocator, to compare later ones with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IdleEpoch(pub(crate) u64);

impl IdleEpoch {
    /// Before anything.
    pub const NEVER: IdleEpoch = IdleEpoch(0);
}

/// What nothing used for so many passes goes back.
const PASSES_LEAST: u64 = 3;
/// And at most for so many, whatever is asked for again.
const PASSES_MOST: u64 = 600;
/// What went back is remembered for so many.
const PASSES_REMEMBERED: u64 = 900;
/// So many sizes of it. Others count as never asked for again.
const SIZES_MAX: usize = 512;

#[derive(Clone, Default)]
pub(crate) struct Decay {
    /// One for each pass, the newest last.
    marks: VecDeque<IdleEpoch>,
    passes_count: u64,
    /// For how many passes memory is kept unused; 0: nothing is known but the least.
    learned_count: u64,
    gone: Option<Gone>,
}

/// What went back lately.
#[derive(Clone)]
struct Gone {
    /// When it began to.
    at_pass: u64,
    /// For how many passes it had been unused then.
    unused_count: u64,
    bytes: u64,
    again_bytes: u64,
    /// How many segments of each size were not asked for again.
    segments: BTreeMap<u64, u64>,
    /// In arenas, where any memory serves as well.
    mapped_bytes: u64,
}

/// What a pass finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pass {
    /// Now.
    pub mark: IdleEpoch,
    /// What is idle since then goes back, as soon as the work with it is over.
    pub due: Option<IdleEpoch>,
}

impl Decay {
    /// A pass at this mark. `unused_count`: for how many passes memory is kept that nothing uses;
    /// None: as Note [Decay] says. Returns the mark since which what is idle goes back, if any
    /// does.
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

    /// The mark of the last pass.
    pub(crate) fn newest(&self) -> Option<IdleEpoch> {
        self.marks.back().copied()
    }

    fn kept_count(&self) -> u64 {
        self.learned_count.max(PASSES_LEAST)
    }

    /// A segment goes back because nothing used it.
    pub(crate) fn segment_went(&mut self, bytes: u64) {
        let gone = self.gone();
        gone.bytes += bytes;
        if gone.segments.len() < SIZES_MAX || gone.segments.contains_key(&bytes) {
            *gone.segments.entry(bytes).or_default() += 1;
        }
    }

    /// So do mappings.
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

    /// The driver gave a segment.
    pub(crate) fn segment_came(&mut self, bytes: u64) {
        let Some(gone) = &mut self.gone else { return };
        let Some(count) = gone.segments.get_mut(&bytes).filter(|count| **count > 0) else { return };
        *count -= 1;
        gone.again_bytes += bytes;
        self.learn();
    }

    /// Or put memory behind addresses.
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
