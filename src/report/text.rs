//! Numbers as people read them, and as the page says them (`page/format.js`).

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Three digits: as many as one can compare at a glance.
pub fn bytes(bytes: u64) -> String {
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1023.5 && unit < UNITS.len() - 1 {
        amount /= 1024.0;
        unit += 1;
    }
    let digits: usize = match amount {
        _ if unit == 0 => 0,
        amount if amount >= 99.95 => 0,
        amount if amount >= 9.995 => 1,
        _ => 2,
    };
    // As in the page, a half is rounded up.
    let ten = 10f64.powi(digits as i32);
    format!("{:.digits$} {}", (amount * ten).round() / ten, UNITS[unit])
}

/// With a comma between thousands.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 block", "12 blocks".
pub fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A share in percent, with a digit more where it is small.
pub fn share(part: u64, whole: u64) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    if percent >= 9.95 || part == 0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// A span of time.
pub fn time(us: u64) -> String {
    let seconds = us as f64 / 1e6;
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..600_000_000 => format!("{seconds:.2} s"),
        _ => format!("{} min", count(us / 60_000_000)),
    }
}

/// A name that is too long for a sentence, cut.
pub fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_string(),
    }
}

const NAME_CHARS_MAX: usize = 120;
