//! Crashes of the driver itself. On a GPU some programs that end graphs crash in the driver, with
//! the library and without it, at the same instruction. A crash under the library is no difference
//! if a run without it has crashed at that place as well.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::play::crash::CRASHED;

/// The places at which runs without the library have crashed.
#[derive(Clone, Default, Debug)]
pub struct DriverCrashes(Arc<Mutex<BTreeSet<String>>>);

impl DriverCrashes {
    /// Notes where a run without the library has crashed. Prints the first crash at each place.
    pub fn note(&self, stderr: &str) {
        if let Some(place) = place_in(stderr)
            && self.0.lock().expect("no job panics").insert(place.to_string())
        {
            println!("== without the library\n{stderr}");
        }
    }

    /// Returns whether the text ends with such a place inside the driver.
    pub fn explain(&self, kind: &str) -> bool {
        let places = self.0.lock().expect("no job panics");
        places.iter().filter(|place| place.starts_with("libcuda.so")).any(|place| {
            kind.strip_suffix(place.as_str()).is_some_and(|rest| rest.ends_with(" at "))
        })
    }
}

/// Returns the place of a crash, according to what the process wrote.
pub fn place_in(stderr: &str) -> Option<&str> {
    stderr.lines().find_map(|line| line.strip_prefix(CRASHED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_driver_explains_a_crash_there() {
        let crashes = DriverCrashes::default();
        crashes.note("judge: crashed at judge+0x10\n");
        crashes.note("something\njudge: crashed at libcuda.so.580+0xf6509e\nframes");
        assert!(crashes.explain("behind others: exit code 139 at libcuda.so.580+0xf6509e"));
        assert!(!crashes.explain("exit code 139 at libcuda.so.580+0xf6509"));
        assert!(!crashes.explain("exit code 139 at judge+0x10"));
        assert!(!crashes.explain("exit code 139"));
    }
}
