//! Accounts as texts by name, as a snapshot carries them.

use std::collections::BTreeMap;

use crate::account::{Account, Part, Row, Said};

/// What the texts of a snapshot are named, followed by a device, a part, and perhaps a library.
const TEXT_BEGIN: &str = "memory";
const TOTAL: &str = "total";
const IN_USE: &str = "in_use";
const AGE_MS: &str = "age_ms";
const MISSED: &str = "missed";

impl Account {
    /// As texts by name.
    pub fn texts(&self) -> Vec<(String, String)> {
        let name = |what: &str| format!("{TEXT_BEGIN} {} {what}", self.device);
        let facts = [(TOTAL, self.total_bytes), (IN_USE, self.in_use_bytes), (AGE_MS, self.age_ms)];
        let facts = facts.into_iter().filter_map(|(what, fact)| Some((name(what), fact?)));
        let said = self.said.map(|said| (name(said.word()), said.bytes()));
        let rows = self.rows.iter().map(|Row { part, library, bytes }| {
            let what = format!("{} {library}", part.word());
            (name(what.trim_end()), *bytes)
        });
        let missed = (self.missed_count > 0).then(|| (name(MISSED), self.missed_count));
        facts
            .chain(said)
            .chain(missed)
            .chain(rows)
            .map(|(name, bytes)| (name, bytes.to_string()))
            .collect()
    }
}

/// The accounts that are among these texts, by device. What is not understood is left out.
pub fn of_texts<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Account> {
    let mut all = BTreeMap::new();
    for (name, text) in texts {
        let mut words = name.splitn(4, ' ');
        let (begin, device, what) = (words.next(), words.next(), words.next());
        let device = device.and_then(|device| device.parse().ok());
        let (Some(TEXT_BEGIN), Some(device), Some(what)) = (begin, device, what) else { continue };
        let Ok(number) = text.parse() else { continue };
        let account: &mut Account = all.entry(device).or_insert_with(|| Account::new(device));
        match (what, Part::of_word(what)) {
            (TOTAL, _) => account.total_bytes = Some(number),
            (IN_USE, _) => account.in_use_bytes = Some(number),
            (AGE_MS, _) => account.age_ms = Some(number),
            (MISSED, _) => account.missed_count = number,
            (_, Some(part)) => account.add(part, words.next().unwrap_or(""), number),
            (word, None) => account.said = Said::of_word(word, number).or(account.said),
        }
    }
    all.into_values().collect()
}
