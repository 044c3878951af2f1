//! Texts and cells about a fit, for the command and for the report.

use cachealloc_text::{bytes, count, plural, share};

use crate::device_fit::DeviceFit;
use crate::memory::Capacity;
use crate::replay::Outcome;
use crate::smallest::Smallest;
use crate::trials::{Trial, Verdict};

impl DeviceFit {
    /// Returns the title. `device` is its ordinal.
    pub fn title(&self, device: u32) -> String {
        let requests = &self.requests;
        let (all, held) = (count(requests.count() as u64), bytes(requests.peak_bytes()));
        let failed = match requests.failed_count() {
            0 => String::new(),
            failed => format!(", of which {} failed", count(failed)),
        };
        let recorded = bytes(self.recorded_reserved_bytes);
        format!(
            "device {device}: {all} allocations{failed}, {held} at the peak; the recorded run reserved {recorded}"
        )
    }

    /// Returns what follows "the run", without a full stop, or `None` if there is no verdict.
    pub fn verdict_text(&self) -> Option<String> {
        let capacity = match self.capacity? {
            Capacity::Limit(most) => format!("a limit of {}", bytes(most)),
            Capacity::Device(most) => bytes(most),
            Capacity::Plenty => return None,
        };
        Some(match self.verdict? {
            Verdict::Fits(index) => {
                format!("fits within {capacity} with {}", self.trials[index].name())
            }
            Verdict::FitsWithNone => {
                let sets = plural(self.trials.len() as u64, "set");
                format!("does not fit within {capacity} ({sets} of options tried)")
            }
            Verdict::CannotFit => format!(
                "cannot fit within {capacity}: it needs {} at once",
                bytes(self.requests.peak_bytes())
            ),
        })
    }

    /// Whether the run fits, or `None` if there is no verdict.
    pub fn fits(&self) -> Option<bool> {
        self.verdict.map(|verdict| matches!(verdict, Verdict::Fits(_)))
    }

    /// Returns the cells of each set, the best first: least limit, least device, completes,
    /// reserved, fragmented, driver calls, options.
    pub fn rows(&self) -> impl Iterator<Item = [String; 7]> {
        self.trials.iter().map(Trial::row)
    }

    /// Returns what the rows do not contain, in lines: where more memory does not help, and what is
    /// unknown.
    pub fn notes(&self) -> Vec<String> {
        let also = self.trials.iter().filter_map(Trial::also);
        also.chain(self.unknowns.iter().map(|unknown| format!("unknown: {unknown}"))).collect()
    }
}

impl Trial {
    fn name(&self) -> &str {
        if self.set.text.is_empty() { "the default options" } else { &self.set.text }
    }

    fn row(&self) -> [String; 7] {
        let least = |size: &Option<Smallest>| {
            size.as_ref().map_or("-".to_string(), |size| mebibytes(size.bytes))
        };
        let Outcome { peak_reserved_bytes, driver_calls, .. } = self.outcome;
        let [completes, reserved, fragmented, calls] = match self.outcome.completes() {
            true => [
                "yes".to_string(),
                bytes(peak_reserved_bytes),
                share(self.outcome.fragmentation()),
                count(driver_calls),
            ],
            false => ["no", "-", "-", "-"].map(str::to_string),
        };
        let (limit, device) = (least(&self.limit), least(&self.device));
        [limit, device, completes, reserved, fragmented, calls, self.name().to_string()]
    }

    fn also(&self) -> Option<String> {
        let sizes = |size: &Option<Smallest>| {
            let sizes = size.iter().flat_map(|size| &size.also_bytes);
            sizes.map(|size| mebibytes(*size)).collect::<Vec<_>>().join(", ")
        };
        let (limits, devices) = (sizes(&self.limit), sizes(&self.device));
        let what = match (limits.is_empty(), devices.is_empty()) {
            (true, true) => return None,
            (false, true) => format!("a limit of {limits}"),
            (true, false) => format!("a device of {devices}"),
            (false, false) => format!("a limit of {limits} and a device of {devices}"),
        };
        let name = self.name();
        Some(format!("{name}: also completes with {what}, but not with every larger size"))
    }
}

/// Formats a size in the unit of a limit, not rounded: the next smaller limit may not suffice.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", count(bytes >> 20))
}
