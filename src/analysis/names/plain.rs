//! Texts of others for people's eyes: the one way in which a name from a file or from another process gets
//! to a terminal.

use std::borrow::Cow;

/// Without what would do something there, or turn the line around.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return text.into();
    }
    text.chars().map(|letter| if acts(letter) { '?' } else { letter }).collect::<String>().into()
}

/// Whether a letter is no letter: a terminal obeys it, or shows what follows in another order.
pub fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Not more than so many letters of it.
pub fn cut(text: &str, letters_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(letters_max) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}
