//! Texts of the page: shares and durations, and escaping for HTML.

use cachealloc_text::is_steering;

/// Formats the share of `part` in `whole`; 0 if `whole` is 0.
pub(crate) fn share(part: u64, whole: u64) -> String {
    cachealloc_text::share(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// Formats a duration in microseconds.
pub(crate) fn time(us: u64) -> String {
    cachealloc_text::time(us.saturating_mul(1_000))
}

/// Encodes a value for the fragment of an address.
pub(crate) fn in_address(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    let part = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    };
    text.bytes().map(part).collect()
}

/// Escapes text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => made.push_str("&lt;"),
            '>' => made.push_str("&gt;"),
            '&' => made.push_str("&amp;"),
            '"' => made.push_str("&quot;"),
            '\'' => made.push_str("&#39;"),
            '\n' | '\t' => made.push(letter),
            letter if is_steering(letter) => made.push('\u{fffd}'),
            letter => made.push(letter),
        }
    }
    made
}
