//! The lifetime of each block of a device, computed from its history.
//!
//! Time is counted in entries. *Moment* `m` is the time after the first `m` entries: 0 is the start
//! of the history. `entries.len()` is its end, which the segments of the file describe.
//!
//! A history may begin after the program and have gaps: a ring drops its oldest entries, and a
//! recording can be switched off and on. What is missing follows from the end:
//!
//! * A block that is freed but whose allocation is missing existed before the history.
//! * So did a block that the segments hold and that no entry mentions.
//! * Where entries and segments disagree about the end, the segments are right. So what is live at
//!   the end is, to the byte, what the blocks of the file hold.

use crate::model::{Device, StackId, TextId};
use crate::replay;

/// Number of entries that have happened.
pub type Moment = u32;

/// One block, from an allocation to its free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    pub address: u64,
    /// Requested size.
    pub bytes: u64,
    pub stream: u64,
    /// Allocating stack, if known.
    pub stack: StackId,
    pub category: TextId,
    /// The program holds the block in the moments `begin..end`.
    pub begin: Moment,
    pub end: Moment,
    /// In the moments `end..reusable` the block is freed, but a stream may still use it.
    pub reusable: Moment,
    /// Whether the history has the entry of its allocation, the last one before `begin`.
    pub begin_known: bool,
    /// Whether the history has the entry of its free, the last one before `end`.
    pub end_known: bool,
}

/// All lifetimes of one device.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes {
    /// First the lifetimes whose allocation is not in the history, then the others in the order of
    /// allocation.
    pub all: Vec<Lifetime>,
    /// The last moment: the number of entries.
    pub last: Moment,
    /// The first moment at which the program held most.
    pub peak: Moment,
    pub peak_bytes: u64,
    /// Bytes that the program holds at the end.
    pub end_bytes: u64,
    /// Number of blocks on which the entries and the segments disagree.
    pub disagreements_count: u64,
}

impl Lifetime {
    pub fn is_live_at(&self, moment: Moment) -> bool {
        (self.begin..self.end).contains(&moment)
    }

    /// Returns the index of the allocating entry.
    pub fn allocated_by(&self) -> Option<usize> {
        self.begin_known.then(|| self.begin as usize - 1)
    }

    /// Returns the index of the freeing entry.
    pub fn freed_by(&self) -> Option<usize> {
        self.end_known.then(|| self.end as usize - 1)
    }
}

impl Lifetimes {
    pub fn of(device: &Device) -> Lifetimes {
        replay::replay(device)
    }

    /// Returns some of these lifetimes, with the peak and the end of these alone.
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

    /// Returns the bytes that the program held at each moment. There is one more moment than
    /// entries.
    pub fn bytes_over_time(&self) -> Vec<u64> {
        running(self.last, self.all.iter().map(|life| (life.begin, life.end, life.bytes)))
    }

    /// Returns the blocks that the program held at a moment.
    pub fn live_at(&self, moment: Moment) -> impl Iterator<Item = &Lifetime> {
        self.all.iter().filter(move |life| life.is_live_at(moment))
    }
}

/// Returns, for every moment, the sum of the amounts that exist in `[from, until)`.
///
/// Additions wrap around and so never fail: whatever the file contains, each added amount is
/// subtracted again.
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
