//! Bytes as a person reads them.

/// `512 bytes`, `20.0 MiB`, `1.50 GiB`: three digits or more, and never rounded up to a full unit.
pub fn human_bytes(bytes: u64) -> String {
    let unit = UNITS.iter().rposition(|&(_, size)| bytes >= size).map(|index| UNITS[index]);
    let Some((name, size)) = unit else {
        return if bytes == 1 { "1 byte".into() } else { format!("{bytes} bytes") };
    };
    let hundredths = (u128::from(bytes) * 100 / u128::from(size)) as u64;
    let (whole, part) = (hundredths / 100, hundredths % 100);
    match whole {
        0..10 => format!("{whole}.{part:02} {name}"),
        10..100 => format!("{whole}.{} {name}", part / 10),
        _ => format!("{whole} {name}"),
    }
}

const UNITS: [(&str, u64); 5] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("PiB", 1 << 50)];
