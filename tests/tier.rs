//! The two tiers of the tests: `make test` takes minutes, `make test-long` runs everything at full counts.
//!
//! A test that belongs to the long tier alone has `#[ignore = "long tier"]`; that tier runs what is ignored for another
//! reason as well, so that measurements keep working.

// Also for the tests of the core, which does without.
extern crate std;

/// How much of something a test does: `fast` in `make test`, `long` in `make test-long`.
pub fn count<T>(fast: T, long: T) -> T {
    if is_long() { long } else { fast }
}

/// Whether the long tier runs: `TEST_TIER=long`.
pub fn is_long() -> bool {
    std::env::var_os("TEST_TIER").is_some_and(|tier| tier == "long")
}
