//! Shares and spans of time, as the page writes them (`page/format.js`).

use cachealloc_text::count;

/// A share in percent, with a digit more where it is small.
pub(crate) fn share(part: u64, whole: u64) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    if percent >= 9.95 || part == 0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// A span of time.
pub(crate) fn time(us: u64) -> String {
    let seconds = us as f64 / 1e6;
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..600_000_000 => format!("{seconds:.2} s"),
        _ => format!("{} min", count(us / 60_000_000)),
    }
}
