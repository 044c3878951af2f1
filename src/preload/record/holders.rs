//! The bytes that each stack holds, and held at the peak, counted as they change.
//!
//! A peak is one moment for all stacks, of which there may be many thousands: copying them at each
//! new peak would make allocations slow. So a row saves its peak value only when it first changes
//! after the latest peak; until then its current value is the peak value.

use cachealloc_history::StackId;

#[derive(Default)]
pub(crate) struct Holders {
    /// Indexed by the number of the stack.
    rows: Vec<Row>,
    bytes: u64,
    bytes_peak: u64,
    /// Number of peaks so far.
    peaks_count: u64,
}

#[derive(Clone, Copy, Default)]
struct Row {
    bytes: u64,
    /// The value at the peak numbered `peak`.
    bytes_at_peak: u64,
    peak: u64,
    allocations_count: u64,
    frees_count: u64,
}

/// The bytes that one stack holds and held at the peak, and its numbers of allocations and frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StackTotals {
    pub stack: StackId,
    pub bytes: u64,
    pub bytes_at_peak: u64,
    pub allocations_count: u64,
    pub frees_count: u64,
}

impl Holders {
    pub(crate) fn allocated(&mut self, stack: StackId, bytes: u64) {
        let Some(row) = self.row(stack) else { return };
        row.bytes += bytes;
        row.allocations_count += 1;
        self.bytes += bytes;
        if self.bytes > self.bytes_peak {
            self.bytes_peak = self.bytes;
            self.peaks_count += 1;
        }
    }

    pub(crate) fn freed(&mut self, stack: StackId, bytes: u64) {
        let Some(row) = self.row(stack) else { return };
        row.bytes = row.bytes.saturating_sub(bytes);
        row.frees_count += 1;
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Makes the current state the peak.
    pub(crate) fn reset_peak(&mut self) {
        self.bytes_peak = self.bytes;
        self.peaks_count += 1;
    }

    /// Returns every stack that ever held anything.
    pub(crate) fn all(&self) -> impl Iterator<Item = StackTotals> {
        self.rows.iter().enumerate().filter_map(|(number, row)| {
            let at_peak = row.peak == self.peaks_count;
            let bytes_at_peak = if at_peak { row.bytes_at_peak } else { row.bytes };
            let Row { bytes, allocations_count, frees_count, .. } = *row;
            let stack = StackId(number as u32);
            let totals =
                StackTotals { stack, bytes, bytes_at_peak, allocations_count, frees_count };
            (allocations_count != 0).then_some(totals)
        })
    }

    /// Returns the row that is about to change, or `None` if there is no memory for it.
    fn row(&mut self, stack: StackId) -> Option<&mut Row> {
        let number = stack.0 as usize;
        if !crate::record::grow_to(&mut self.rows, number) {
            return None;
        }
        let row = &mut self.rows[number];
        if row.peak != self.peaks_count {
            (row.bytes_at_peak, row.peak) = (row.bytes, self.peaks_count);
        }
        Some(row)
    }
}
