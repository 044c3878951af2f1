//! Amounts of memory on the command line.

/// What to write where a size is wanted.
pub(crate) const ALLOWED: &str = "a size such as 4G or 512M";

/// `4G`, `1.5GiB`, `512m`: powers of 1024. `0` needs no unit. None: it is no size.
pub(crate) fn parse(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        _ => return None,
    };
    let is_plain = digits.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    let number: f64 = digits.parse().ok().filter(|_| is_plain)?;
    Some((number * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("0M", Some(0)),
            ("64K", Some(64 << 10)),
            ("1.5GiB", Some(3 << 29)),
            ("4g", Some(4 << 30)),
            ("1T", Some(1 << 40)),
        ] {
            assert_eq!(super::parse(text), wanted, "{text}");
        }
        for text in ["", "4", "G", "4X", "-4G", "1e3M", "4 G", "infM", "0x1G", "1.2.3M"] {
            assert_eq!(super::parse(text), None, "{text}");
        }
    }
}
