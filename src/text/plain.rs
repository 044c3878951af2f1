//! Names from files and from other processes, made harmless to a terminal.

use std::borrow::Cow;

/// With `?` for each letter that would steer the terminal or change the order of the line.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return text.into();
    }
    text.chars()
        .map(|letter| if is_steering(letter) { '?' } else { letter })
        .collect::<String>()
        .into()
}

/// Whether a terminal obeys this letter, or shows what follows in another order.
pub fn is_steering(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// At most so many letters.
pub fn cut(text: &str, letters_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(letters_max) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
