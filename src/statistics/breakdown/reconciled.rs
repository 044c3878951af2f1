//! A breakdown whose rows add up to a sum, and the bytes that are in no row.

use crate::breakdown::{Breakdown, Component, Method, Place, Row, Sum};

/// A breakdown that adds up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reconciled {
    pub device: i32,
    pub total_bytes: Option<u64>,
    pub age_ms: Option<u64>,
    pub missed_count: u64,
    pub sum: Option<Sum>,
    /// All rows, in the order of their components.
    pub rows: Vec<Row>,
    /// Bytes that are in the sum and in no row; negative if the process changed meanwhile. `None`
    /// without a sum.
    pub rest_bytes: Option<i64>,
}

impl Breakdown {
    /// Makes the rows add up to `sum`. If it is `None`, the sum is NVML's reading that came with
    /// the rows, or else what is in use on the device, if that is known.
    pub fn reconcile(&self, sum: Option<Sum>) -> Reconciled {
        let nvml_reading =
            || self.nvml_reading.and_then(|nvml_reading| nvml_reading.sum(self.in_use_bytes));
        let sum = sum.or_else(nvml_reading).or(self.in_use_bytes.map(Sum::Device));
        let mut rows = self.rows.clone();
        rows.sort_by(|a, b| {
            (a.component, b.bytes, &a.library).cmp(&(b.component, a.bytes, &b.library))
        });
        if let Some(sum) = sum {
            shorten_taken(&mut rows, sum.bytes());
        }
        if let Some(at) = rows.iter().position(|row| row.component == Component::Context) {
            let before = rows.remove(at);
            let left_bytes = sum.map_or(Some(0), |sum| sum.bytes().checked_sub(added(&rows)));
            let own = sum.and_then(|sum| self.context_bytes(before.bytes, sum));
            // The context did not take what does not fit in: other processes have ended. But if the
            // other rows alone exceed the sum, they have grown since the sum was read, and nothing
            // fits in.
            let own = own.map(|own| left_bytes.map_or(own, |left| own.min(left)));
            if let Some(bytes) = own.filter(|bytes| *bytes > 0) {
                rows.insert(at, Row { bytes, ..before });
            }
        }
        let rest = |sum: Sum| i128::from(sum.bytes()) - i128::from(added(&rows));
        let rest_bytes = sum.map(|sum| rest(sum).clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let Breakdown { device, total_bytes, age_ms, missed_count, .. } = *self;
        Reconciled { device, total_bytes, age_ms, missed_count, sum, rows, rest_bytes }
    }

    /// Returns the part of the bytes in use at the creation of the first context that is in the
    /// sum. The other processes are subtracted; they are assumed to have had then what they have
    /// now.
    fn context_bytes(&self, then_bytes: u64, sum: Sum) -> Option<u64> {
        match sum {
            Sum::Device(_) => Some(then_bytes),
            Sum::Process(own) | Sum::LessOthers(own) => {
                // A process that grew since the driver was asked may have more now than all had
                // then.
                let others_bytes = self.in_use_bytes?.saturating_sub(own);
                then_bytes.checked_sub(others_bytes)
            }
        }
    }
}

fn added(rows: &[Row]) -> u64 {
    let added = rows.iter().filter(|row| row.component.place() == Place::Sum);
    added.fold(0, |all: u64, row| all.saturating_add(row.bytes))
}

/// Shortens the measured rows, the last ones first, if they no longer fit beside the counted ones,
/// because other processes released memory meanwhile. If the counted rows alone exceed the sum,
/// they have grown since it was read, and nothing is known about the others.
fn shorten_taken(rows: &mut Vec<Row>, sum_bytes: u64) {
    let is_taken = |row: &Row| row.component.is_taken();
    let taken: Vec<Row> = rows.iter().filter(|row| is_taken(row)).cloned().collect();
    let counted: Vec<Row> = rows
        .iter()
        .filter(|row| !is_taken(row) && row.component != Component::Context)
        .cloned()
        .collect();
    let Some(left_bytes) = sum_bytes.checked_sub(added(&counted)) else { return };
    let mut over_bytes = added(&taken).saturating_sub(left_bytes);
    for row in rows.iter_mut().rev().filter(|row| is_taken(row)) {
        let bytes = row.bytes.min(over_bytes);
        row.bytes -= bytes;
        over_bytes -= bytes;
    }
    rows.retain(|row| row.bytes > 0 || !is_taken(row));
}

impl Reconciled {
    pub fn in_place(&self, place: Place) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.component.place() == place)
    }

    /// Returns the description of the rest, for people.
    pub fn rest_title(&self) -> String {
        let has_context = self.rows.iter().any(|row| row.component == Component::Context);
        let context = if has_context { "" } else { "contexts, " };
        let others =
            if matches!(self.sum, Some(Sum::Device(_))) { "; other processes" } else { "" };
        let has_taken = self.rows.iter().any(|row| row.component.is_taken());
        let kernels = if has_taken { "" } else { "modules, lazily loaded kernels, their memory, " };
        let events = if has_taken { "memory that no call accounts for, " } else { "" };
        format!("the rest: {context}{kernels}{events}rounding{others}")
    }

    /// Returns the share of the sum that has a row, without and with the rows of differences.
    /// Returns `None` without a sum.
    ///
    /// The row of the first context includes what other processes have released since, and the row
    /// of a call includes what they took during the call. The amounts are unknown, so only the
    /// first share is certain.
    pub fn named_shares(&self) -> Option<[f64; 2]> {
        let sum = self.sum.filter(|sum| sum.bytes() != 0)?;
        let rest = self.rest_bytes?.max(0);
        let differences =
            self.rows.iter().filter(|row| row.component.method() == Method::Difference);
        let uncertain = differences.fold(0, |all: u64, row| all.saturating_add(row.bytes));
        let named = |unnamed: f64| (1.0 - unnamed / sum.bytes() as f64).max(0.0);
        Some([named(rest as f64 + uncertain as f64), named(rest as f64)])
    }
}
