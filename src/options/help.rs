//! The table of options for people: on a terminal, and as Markdown for the documentation.

use crate::{Effect, OPTIONS, OptionRow};

/// Returns the options as text for a terminal.
pub fn help() -> String {
    text_of(OPTIONS.iter())
}

/// Returns the options whose key, meaning or values contain this word, as text for a terminal.
/// Returns `None` if there is no such option.
pub fn help_on(word: &str) -> Option<String> {
    // The user may have written the word as a flag of the command.
    let key = word.trim_start_matches('-').replace('-', "_").to_lowercase();
    let word = word.to_lowercase();
    let is_about = |row: &&OptionRow| {
        let texts = [meaning(row), row.kind.allowed()].map(|text| text.to_lowercase());
        row.key.contains(&key) || texts.iter().any(|text| text.contains(&word))
    };
    let mut found = OPTIONS.iter().filter(is_about).peekable();
    found.peek()?;
    Some(text_of(found))
}

fn text_of<'a>(rows: impl Iterator<Item = &'a OptionRow>) -> String {
    let mut text = String::from("CACHEALLOC_CONF=key:value,key:value\n");
    for row in rows {
        let OptionRow { key, kind, default, .. } = row;
        let (kind, allowed, meaning) = (kind.name(), kind.allowed(), meaning(row));
        text += &format!("{key}  ({kind}, default: {default})\n    {meaning}\n");
        text += &format!("    allowed: {allowed}\n");
    }
    text
}

/// Returns the options as a Markdown table.
pub fn help_markdown() -> String {
    let mut text = String::from("| key | type | default | meaning | allowed |\n");
    text += "|---|---|---|---|---|\n";
    for row in OPTIONS {
        let OptionRow { key, kind, default, .. } = row;
        let (kind, allowed, meaning) = (kind.name(), kind.allowed(), meaning(row));
        text += &format!("| `{key}` | {kind} | `{default}` | {meaning} | {allowed} |\n");
    }
    text
}

fn meaning(row: &OptionRow) -> String {
    match row.effect {
        Effect::Never(why) => format!("PyTorch option; accepted and ignored: {why}"),
        Effect::Always | Effect::If(..) => row.meaning.to_string(),
    }
}
