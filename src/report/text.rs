//! Texts of the page: shares and spans of time, and what HTML must escape.

/// Of nothing it is none.
pub(crate) fn share(part: u64, whole: u64) -> String {
    cachealloc_text::share(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// A span of microseconds.
pub(crate) fn time(us: u64) -> String {
    cachealloc_text::time(us.saturating_mul(1_000))
}

/// As text of HTML.
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
            letter if letter.is_control() => made.push('\u{fffd}'),
            letter => made.push(letter),
        }
    }
    made
}
