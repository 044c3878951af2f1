//! Makes names from files and from other processes harmless to a terminal.

use std::borrow::Cow;

/// Replaces by `?` each letter that would control the terminal, reorder the line, or be invisible.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return text.into();
    }
    text.chars()
        .map(|letter| if is_steering(letter) { '?' } else { letter })
        .collect::<String>()
        .into()
}

/// Whether a terminal interprets this letter, shows the following text in another order, or does
/// not show it.
pub fn is_steering(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
        || is_unseen(letter)
}

/// Whether the letter takes no space on a terminal. Names that differ only in such letters look the
/// same, and a text can be hidden in them.
fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Cuts a text to at most this many letters.
pub fn cut(text: &str, letters_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(letters_max) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
