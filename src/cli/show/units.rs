//! Numbers as people read them.

use cachealloc_text::three_digits;

/// So many in so many seconds: `12.3 k`.
pub(crate) fn per_second(count: u64, seconds: f64) -> String {
    let mut rate = count as f64 / seconds;
    for (unit, larger) in [("", " k"), (" k", " M"), (" M", " G")] {
        if rate < 999.5 {
            return match unit {
                "" if rate == 0.0 || rate >= 99.5 => format!("{rate:.0}"),
                _ => format!("{}{unit}", three_digits(rate)),
            };
        }
        rate /= 1000.0;
        if larger == " G" {
            return format!("{}{larger}", three_digits(rate));
        }
    }
    unreachable!("the last unit returns")
}

/// Never rounded up: `100.00 %` is all.
pub(crate) fn share(share: f64) -> String {
    format!("{:.2} %", (1e4 * share).floor() / 100.0)
}

pub(crate) fn time(nanoseconds: u64) -> String {
    match nanoseconds as f64 / 1e9 {
        seconds if seconds >= 99.95 => format!("{seconds:.0} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.1} ms", 1e3 * seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_shares_and_times() {
        for (number, wanted) in
            [(0, "0"), (5, "5.00"), (150, "150"), (12_345, "12.3 k"), (2_000_000_000, "2.00 G")]
        {
            assert_eq!(per_second(number, 1.0), wanted);
        }
        assert_eq!([1.0, 0.999_999, 0.0].map(share), ["100.00 %", "99.99 %", "0.00 %"]);
        assert_eq!(time(1_250_000), "1.2 ms");
        assert_eq!(time(75_000_000_000), "75.0 s");
    }
}
