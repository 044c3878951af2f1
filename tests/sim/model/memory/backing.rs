//! Backing of physical memory: one file of this process for all handles. One file per handle would
//! take as many descriptors, and a driver without descriptors is not out of memory.

use super::raw;

#[derive(Default)]
pub struct Backing {
    file: Option<i32>,
    /// End of the file. Places are never reused; released memory takes no space.
    bytes: u64,
}

impl Backing {
    /// Allocates bytes that read zero. Returns their place.
    pub fn take(&mut self, bytes: u64) -> u64 {
        let place = self.bytes;
        self.bytes += bytes;
        let file = match self.file {
            Some(file) => raw::resize_shared(file, self.bytes).then_some(file),
            None => raw::create_shared(self.bytes),
        };
        self.file = Some(file.unwrap_or_else(|| stop("no file for physical memory")));
        place
    }

    pub fn give(&mut self, place: u64, bytes: u64) {
        if let Some(file) = self.file {
            raw::clear_shared(file, place, bytes);
        }
    }

    /// Maps the bytes of this place at an address.
    pub fn show(&self, at: u64, bytes: u64, place: u64) {
        if !raw::place(at, bytes, self.file, place) {
            stop("no mapping for physical memory (vm.max_map_count)");
        }
    }
}

/// Ends the process. No error code of the driver means that the machine has no more descriptors or
/// addresses: a program, or the library under test, would continue as if device memory were
/// exhausted.
fn stop(what: &str) -> ! {
    eprintln!("simulated driver: {what}: {}", std::io::Error::last_os_error());
    std::process::abort()
}
