//! Writers for the formats of other tools.

mod folded;
mod model;
mod perfetto;
mod pprof;
mod speedscope;

pub use folded::folded;
pub use model::json;
pub use perfetto::perfetto;
pub use pprof::pprof;
pub use speedscope::speedscope;

use std::io::{self, Write};

use crate::model::{Snapshot, StackId};
use crate::{Lifetimes, SiteKey, When, sites};

/// The weight of a stack on a device.
struct Weighted {
    device: u32,
    stack: StackId,
    weight: u64,
}

/// Returns all stacks with a weight, in the order in which they first allocated.
fn weighted(snapshot: &Snapshot, by: SiteKey, when: When) -> Vec<Weighted> {
    let mut all = Vec::new();
    for (ordinal, device) in (0..).zip(&snapshot.devices) {
        let lifetimes = Lifetimes::of(device);
        let Some(at) = when.resolve(device, &lifetimes) else { continue };
        for site in sites(device, &lifetimes, at) {
            let weight = by.weight(&site.totals);
            if weight > 0 {
                all.push(Weighted { device: ordinal, stack: site.stack, weight });
            }
        }
    }
    all
}

/// A writer that fails if a small file would produce a large output, for example a stack of a
/// million frames for each of a thousand devices.
pub struct Bounded<W> {
    out: W,
    left: u64,
    bytes_max: u64,
}

impl<W: Write> Bounded<W> {
    pub fn new(snapshot: &Snapshot, out: W) -> Bounded<W> {
        let bytes_max = BYTES_LEAST + snapshot.file_bytes.saturating_mul(TIMES_MAX);
        Bounded { out, left: bytes_max, bytes_max }
    }
}

impl<W> Bounded<W> {
    fn too_large(&self) -> String {
        let most = cachealloc_text::bytes(self.bytes_max);
        format!("it would exceed {most}, out of proportion to the snapshot")
    }
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        match self.left.checked_sub(written as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(self.too_large())),
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Largest output as a multiple of the file size. Ordinary files need less than ten times.
const TIMES_MAX: u64 = 64;
/// Output that is always allowed, however small the file is.
const BYTES_LEAST: u64 = 64 << 20;

/// Converts a number for the two protobuf formats, whose integers are signed.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Frame that stands for an empty stack where a tool requires one.
const NO_STACK: &str = "[no stack]";
