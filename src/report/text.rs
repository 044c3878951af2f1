//! Shares and spans of time, as the page writes them (`page/format.js`).

/// A share in percent, with a digit more where it is small.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    if percent >= 9.95 || part == 0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// A span of microseconds.
pub(crate) fn time(us: u64) -> String {
    cachealloc_text::time(us.saturating_mul(1_000))
}
