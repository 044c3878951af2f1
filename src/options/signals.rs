//! The signals that may request a snapshot: those that a program neither gets by accident nor needs
//! for itself. The numbers are those of Linux on x86-64 and aarch64.

const SIGNALS: [(&str, i32); 8] = [
    ("USR1", 10),
    ("USR2", 12),
    ("HUP", 1),
    ("URG", 23),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
];

/// Returns the names, and the word for no signal.
pub(crate) fn words() -> Vec<&'static str> {
    SIGNALS.iter().map(|(name, _)| *name).chain(["off"]).collect()
}

/// Returns the number of a signal by its name, with or without `SIG`.
pub(crate) fn number(name: &str) -> Option<i32> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
