//! Amounts as people read them. The report's page writes the same (`report/page/format.js`).

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// `512 B`, `1.50 GiB`: three digits, as many as one can compare at a glance.
pub fn bytes(bytes: u64) -> String {
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1023.5 && unit < UNITS.len() - 1 {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{} {}", three_digits(amount), UNITS[unit])
    }
}

/// With a comma between thousands: `1,234,567`.
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

/// `1 block`, `12 blocks`.
pub fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `1.50`, `15.0`, `150`. As in the page, a half is rounded up.
pub fn three_digits(amount: f64) -> String {
    let digits: usize = match amount {
        amount if amount >= 99.95 => 0,
        amount if amount >= 9.995 => 1,
        _ => 2,
    };
    let ten = 10f64.powi(digits as i32);
    format!("{:.digits$}", (amount * ten).round() / ten)
}
