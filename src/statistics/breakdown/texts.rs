//! Breakdowns as named texts, as a snapshot carries them.

use std::collections::BTreeMap;

use crate::breakdown::{Breakdown, Component, NvmlReading, Row};

/// First word of the texts' names, followed by a device, a component, and perhaps a library.
const TEXT_BEGIN: &str = "memory";
const TOTAL: &str = "total";
const IN_USE: &str = "in_use";
const AGE_MS: &str = "age_ms";
const MISSED: &str = "missed";

impl Breakdown {
    /// Returns the breakdown as named texts.
    pub fn texts(&self) -> Vec<(String, String)> {
        let name = |what: &str| format!("{TEXT_BEGIN} {} {what}", self.device);
        let facts = [(TOTAL, self.total_bytes), (IN_USE, self.in_use_bytes), (AGE_MS, self.age_ms)];
        let facts = facts.into_iter().filter_map(|(what, fact)| Some((name(what), fact?)));
        let nvml_reading =
            self.nvml_reading.map(|nvml_reading| (name(nvml_reading.word()), nvml_reading.bytes()));
        let rows = self.rows.iter().map(|Row { component, library, bytes }| {
            let what = format!("{} {library}", component.word());
            (name(what.trim_end()), *bytes)
        });
        let missed = (self.missed_count > 0).then(|| (name(MISSED), self.missed_count));
        facts
            .chain(nvml_reading)
            .chain(missed)
            .chain(rows)
            .map(|(name, bytes)| (name, bytes.to_string()))
            .collect()
    }
}

/// Reads the breakdowns among these texts, by device. Texts that are not understood are skipped.
pub fn of_texts<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Breakdown> {
    let mut all = BTreeMap::new();
    for (name, text) in texts {
        let mut words = name.splitn(4, ' ');
        let (begin, device, what) = (words.next(), words.next(), words.next());
        let device = device.and_then(|device| device.parse().ok());
        let (Some(TEXT_BEGIN), Some(device), Some(what)) = (begin, device, what) else { continue };
        let Ok(number) = text.parse() else { continue };
        let breakdown: &mut Breakdown = all.entry(device).or_insert_with(|| Breakdown::new(device));
        match (what, Component::of_word(what)) {
            (TOTAL, _) => breakdown.total_bytes = Some(number),
            (IN_USE, _) => breakdown.in_use_bytes = Some(number),
            (AGE_MS, _) => breakdown.age_ms = Some(number),
            (MISSED, _) => breakdown.missed_count = number,
            (_, Some(component)) => breakdown.add(component, words.next().unwrap_or(""), number),
            (word, None) => {
                breakdown.nvml_reading =
                    NvmlReading::of_word(word, number).or(breakdown.nvml_reading)
            }
        }
    }
    all.into_values().collect()
}
