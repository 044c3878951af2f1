//! Sizes as people write them.

/// Reads `4G`, `4GB`, `1.5 GiB`, `512m`, `4096B`: powers of 1024, as GPU tools count. `0` needs no
/// unit. Returns `None` if the text is not a size.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let digits = digits.trim_end();
    let power = match unit.as_str() {
        "B" => 0,
        "K" | "KB" | "KIB" => 1,
        "M" | "MB" | "MIB" => 2,
        "G" | "GB" | "GIB" => 3,
        "T" | "TB" | "TIB" => 4,
        _ => return None,
    };
    let is_plain = digits.bytes().all(|letter| letter.is_ascii_digit() || letter == b'.');
    let number: f64 = digits.parse().ok().filter(|_| is_plain)?;
    Some((number * f64::from(1u32 << 10).powi(power)) as u64)
}
