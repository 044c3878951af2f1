//! Shared helpers of the queries.

use cachealloc_tests::driver::Outcome;

/// Calls a function of the driver that has no wrapper, and returns its code.
macro_rules! code {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each argument is a value, null, or a pointer of the program that outlives the
        // call and is as large as this function's documentation requires.
        unsafe { ($driver.functions.$function)($($argument),*) }
    };
}

/// Contents of an output before the call: they show whether, and how much, was written.
pub const UNTOUCHED: u64 = 0xEEEE_EEEE_EEEE_EEEE;

/// Returns 0 or the driver's code, for calls whose failure is the point.
pub fn code_of<T>(outcome: Outcome<T>) -> i32 {
    outcome.err().unwrap_or(0)
}

/// Formats an output; an address is shown relative to `base`.
pub fn shown(value: u64, base: u64, bytes: usize) -> String {
    match value {
        UNTOUCHED => "untouched".into(),
        0 => "0".into(),
        _ if value >= base && value - base <= bytes as u64 => format!("+{}", value - base),
        _ if value & 0xFFFF_FFFF_FFFF_FF00 == UNTOUCHED & 0xFFFF_FFFF_FFFF_FF00 => {
            format!("byte {}", value & 0xFF)
        }
        _ if value >> 32 == UNTOUCHED >> 32 => format!("int {}", value as u32 as i32),
        _ => value.to_string(),
    }
}

/// A small random generator: a seed gives the same numbers everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
