//! Which block was there from when to when: the history of a device, told by block.
//!
//! Time is counted in entries. The *moment* `m` is when the first `m` entries have happened: 0 is
//! the begin of the history and `entries.len()` the end, of which the segments of the file tell.
//!
//! A history need not begin with the program, nor be without gaps: a ring drops its oldest entries,
//! and a recording can be switched off and on. What it does not tell follows from the end:
//!
//! * A block that is freed, and whose allocation is not there, was there before.
//! * So was a block that the segments hold and no entry speaks of.
//! * Where entries and segments disagree about the end, the segments are right. So what is live at
//!   the end is, to the byte, what the file's blocks hold.

use crate::model::{Device, StackId, TextId};
use crate::replay;

/// The number of entries that have happened.
pub type Moment = u32;

/// One block, from an allocation to its free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    pub address: u64,
    /// What was requested.
    pub bytes: u64,
    pub stream: u64,
    /// The allocating stack, if known.
    pub stack: StackId,
    pub category: TextId,
    /// The program holds it in the moments from `begin` to before `end`.
    pub begin: Moment,
    pub end: Moment,
    /// And from `end` to before this it is free, but a stream may still use it.
    pub reusable: Moment,
    /// Whether the history has the entry of its allocation: the one before `begin`.
    pub begin_known: bool,
    /// Whether the history has the entry of its free: the one before `end`.
    pub end_known: bool,
}

/// All lifetimes of one device.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes {
    /// First those whose allocation is not in the history, then the others as they were allocated.
    pub all: Vec<Lifetime>,
    /// The last moment: how many entries there are.
    pub last: Moment,
    /// When the program held most, for the first time.
    pub peak: Moment,
    pub peak_bytes: u64,
    /// What it holds at the end.
    pub end_bytes: u64,
    /// Blocks about which the entries and the segments disagree.
    pub disagreements_count: u64,
}

impl Lifetime {
    pub fn is_live_at(&self, moment: Moment) -> bool {
        (self.begin..self.end).contains(&moment)
    }

    /// The index of the entry that allocated it.
    pub fn allocated_by(&self) -> Option<usize> {
        self.begin_known.then(|| self.begin as usize - 1)
    }

    /// The index of the entry that freed it.
    pub fn freed_by(&self) -> Option<usize> {
        self.end_known.then(|| self.end as usize - 1)
    }
}

impl Lifetimes {
    pub fn of(device: &Device) -> Lifetimes {
        replay::replay(device)
    }

    /// Some of these blocks, with a peak and an end of their own.
    pub fn only(&self, is_wanted: impl Fn(&Lifetime) -> bool) -> Lifetimes {
        let all = self.all.iter().filter(|life| is_wanted(life)).copied().collect();
        let (last, disagreements_count) = (self.last, self.disagreements_count);
        let mut some = Lifetimes { all, last, disagreements_count, ..Lifetimes::default() };
        some.find_peak_and_end();
        some
    }

    pub(crate) fn find_peak_and_end(&mut self) {
        let bytes = self.bytes_over_time();
        self.end_bytes = bytes[self.last as usize];
        for (moment, &bytes) in (0..).zip(&bytes) {
            if bytes > self.peak_bytes {
                (self.peak, self.peak_bytes) = (moment, bytes);
            }
        }
    }

    /// What the program held, moment by moment; one more than there are entries.
    pub fn bytes_over_time(&self) -> Vec<u64> {
        running(self.last, self.all.iter().map(|life| (life.begin, life.end, life.bytes)))
    }

    /// The blocks that the program held at a moment.
    pub fn live_at(&self, moment: Moment) -> impl Iterator<Item = &Lifetime> {
        self.all.iter().filter(move |life| life.is_live_at(moment))
    }
}

/// The sum, at every moment, of amounts that are there from one moment to before another.
///
/// Wraps around and so never fails: whatever a file says, what was added is taken away again.
pub(crate) fn running(
    last: Moment,
    amounts: impl Iterator<Item = (Moment, Moment, u64)>,
) -> Vec<u64> {
    let mut sums = vec![0u64; last as usize + 2];
    for (begin, end, bytes) in amounts {
        let (begin, end) = (begin as usize, end as usize);
        sums[begin] = sums[begin].wrapping_add(bytes);
        sums[end] = sums[end].wrapping_sub(bytes);
    }
    sums.pop();
    let mut sum = 0u64;
    for value in &mut sums {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
    sums
}
