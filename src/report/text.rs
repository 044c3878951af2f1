//! Texts of the page: shares and spans of time as it writes them (`page/format.js`), and what HTML must escape.

/// A share in percent, with a digit more where it is small.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    if percent >= 9.95 || part == 0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
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
