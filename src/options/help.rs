//! The table as people read it: on a terminal, and as Markdown for the documents.

use crate::{Effect, OPTIONS, OptionRow};

/// The options as text for a terminal.
pub fn help() -> String {
    let mut text = String::from("CACHEALLOC_CONF=key:value,key:value\n");
    for row in OPTIONS {
        let OptionRow { key, kind, default, .. } = row;
        let (kind, allowed, meaning) = (kind.name(), kind.allowed(), meaning(row));
        text += &format!("{key}  ({kind}, default: {default})\n    {meaning}\n");
        text += &format!("    allowed: {allowed}\n");
    }
    text
}

/// The options as a Markdown table.
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
