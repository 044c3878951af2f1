//! Amounts as people read them. The command, the report and the library's own texts share these
//! forms, and the report's page writes the same (`report/page/common/format.js`). The types that
//! implement `Display` allocate nothing.

use std::fmt::{self, Display, Formatter};

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Formats bytes as `512 B` or `1.50 GiB`: three digits, as many as one can compare at a glance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut amount = self.0 as f64;
        let mut unit = 0;
        while amount >= 1023.5 && unit < UNITS.len() - 1 {
            amount /= 1024.0;
            unit += 1;
        }
        if unit == 0 {
            write!(out, "{} B", self.0)
        } else {
            write!(out, "{} {}", ThreeDigits(amount), UNITS[unit])
        }
    }
}

pub fn bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// Formats a number with a comma between thousands: `1,234,567`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count(pub u64);

impl Display for Count {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(out, "{}", self.0),
            count => write!(out, "{},{:03}", Count(count / 1_000), count % 1_000),
        }
    }
}

pub fn count(count: u64) -> String {
    Count(count).to_string()
}

/// Formats `1 block`, `12 blocks`.
pub fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", Count(number), if number == 1 { "" } else { "s" })
}

/// Formats nanoseconds as `160 us`, `1.25 ms`, `75.0 s`, `20 min`. Below a millisecond there are
/// only whole microseconds, because the clocks of snapshots do not resolve less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub u64);

impl Display for Time {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let amount = |unit: f64| ThreeDigits(self.0 as f64 / unit);
        match self.0 / 1_000 {
            0 if self.0 == 0 => write!(out, "0 us"),
            0 => write!(out, "< 1 us"),
            us @ 1..1_000 => write!(out, "{us} us"),
            1_000..1_000_000 => write!(out, "{} ms", amount(1e6)),
            1_000_000..600_000_000 => write!(out, "{} s", amount(1e9)),
            us => write!(out, "{} min", Count(us / 60_000_000)),
        }
    }
}

pub fn time(nanoseconds: u64) -> String {
    Time(nanoseconds).to_string()
}

/// Formats an age in seconds: `12 s`, `6 min`, `3 h`, `2 days`.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..90 => format!("{seconds} s"),
        90..5_400 => format!("{} min", seconds / 60),
        5_400..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", Count(seconds / 86_400)),
    }
}

/// Formats a share, never rounded up: only all of it is `100.00 %`. The error of a division is not
/// cut off: 57 of 100 are `57.00 %`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(pub f64);

impl Display for Share {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{:.2} %", (1e4 * self.0 + DIVISION_ERROR).floor() / 100.0)
    }
}

/// Tolerance in hundredths of a percent: more than the error of a division, and less than a byte in
/// 10 TiB.
const DIVISION_ERROR: f64 = 1e-9;

pub fn share(share: f64) -> String {
    Share(share).to_string()
}

/// Formats a rate per second: `12.3 k`.
pub fn per_second(mut rate: f64) -> String {
    for unit in ["", " k", " M"] {
        if rate < 999.5 {
            return match unit {
                "" if rate == 0.0 || rate >= 99.5 => format!("{rate:.0}"),
                _ => format!("{}{unit}", ThreeDigits(rate)),
            };
        }
        rate /= 1000.0;
    }
    format!("{} G", ThreeDigits(rate))
}

/// Formats `1.50`, `15.0`, `150`. A half is rounded up, as in the page.
struct ThreeDigits(f64);

impl Display for ThreeDigits {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let digits: usize = match self.0 {
            amount if amount >= 99.95 => 0,
            amount if amount >= 9.995 => 1,
            _ => 2,
        };
        let ten = 10f64.powi(digits as i32);
        write!(out, "{:.digits$}", (self.0 * ten).round() / ten)
    }
}
