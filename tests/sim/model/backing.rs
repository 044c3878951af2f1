//! What stands behind physical memory: one file of this process, however many handles there are. A file
//! for each would take as many descriptors, and a driver that runs out of those is not short of memory.

use super::raw;

#[derive(Default)]
pub struct Backing {
    file: Option<i32>,
    /// Places are never used again; what was given back takes no memory.
    bytes: u64,
}

impl Backing {
    /// Bytes that read zero. Returns their place.
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

    /// Puts what lies there at this address.
    pub fn show(&self, at: u64, bytes: u64, place: u64) {
        if !raw::place(at, bytes, self.file, place) {
            stop("no mapping for physical memory (vm.max_map_count)");
        }
    }
}

/// No answer of the driver's says that the machine has no more of this: a program, or the library under
/// test, would go on as if device memory were short.
fn stop(what: &str) -> ! {
    eprintln!("simulated driver: {what}: {}", std::io::Error::last_os_error());
    std::process::abort()
}
