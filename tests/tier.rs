//! The two tiers of the tests: `make test` takes minutes, `make test-long` runs everything with
//! full counts.
//!
//! A test that belongs only to the long tier has `#[ignore = "long tier"]`. That tier also runs the
//! tests that are ignored for another reason, so that measurements keep working.

// For the tests of the core, too, which is `no_std`.
extern crate std;

/// Returns the amount of work of a test: `fast` in `make test`, `long` in `make test-long`.
pub fn count<T>(fast: T, long: T) -> T {
    if is_long() { long } else { fast }
}

/// Whether the long tier runs: `TEST_TIER=long`.
pub fn is_long() -> bool {
    std::env::var_os("TEST_TIER").is_some_and(|tier| tier == "long")
}
