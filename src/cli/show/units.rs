//! Numbers as people read them.

const KIB: f64 = 1024.0;

/// `1.50 GiB`: three digits, in the unit that suits.
pub fn bytes(bytes: u64) -> String {
    let mut amount = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if amount < 999.5 {
            break;
        }
        amount /= KIB;
        unit = larger;
    }
    match unit {
        "B" => format!("{bytes} B"),
        _ => format!("{} {unit}", three_digits(amount)),
    }
}

/// `1 234 567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// So many in so many seconds: `12.3 k`.
pub fn per_second(count: u64, seconds: f64) -> String {
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
pub fn share(share: f64) -> String {
    format!("{:.2} %", (1e4 * share).floor() / 100.0)
}

pub fn time(nanoseconds: u64) -> String {
    match nanoseconds as f64 / 1e9 {
        seconds if seconds >= 99.95 => format!("{seconds:.0} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.1} ms", 1e3 * seconds),
    }
}

fn three_digits(amount: f64) -> String {
    match amount {
        amount if amount < 9.995 => format!("{amount:.2}"),
        amount if amount < 99.95 => format!("{amount:.1}"),
        amount => format!("{amount:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (number, wanted) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (1024, "1.00 KiB"),
            (3 << 20, "3.00 MiB"),
            (22 << 20, "22.0 MiB"),
            (141 << 30, "141 GiB"),
            (1023 << 20, "1.00 GiB"),
        ] {
            assert_eq!(bytes(number), wanted);
        }
        assert_eq!(
            [0, 7, 1234, 1234567, 100000].map(count),
            ["0", "7", "1 234", "1 234 567", "100 000"]
        );
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
