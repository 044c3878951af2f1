//! How much of a device the process takes: what it may hold at most, in which portions, and when it
//! releases what it does not use.

use cachealloc_core::policy::SEGMENT_ROUNDING_BYTES;

/// Memory of each device that the process may hold. If both limits are set, the smaller one
/// applies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limit {
    pub bytes: Option<u64>,
    /// Fraction of all memory of the device; 1 sets no limit.
    pub fraction: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Reserves segments as they are needed.
    AutoGrowth,
    /// Reserves a chunk at the first request, and serves from it all requests that fit.
    PreAllocate,
}

/// Sizes of the chunks of [`Strategy::PreAllocate`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chunks {
    /// Fraction of the memory that is free when a chunk is reserved. With 0, nothing is cached,
    /// whatever the strategy.
    pub fraction: f64,
    pub first_bytes: Option<u64>,
    /// Size of the chunks after the first.
    pub next_bytes: Option<u64>,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { bytes: None, fraction: 1.0 }
    }
}

impl Limit {
    pub fn is_set(&self) -> bool {
        self.bytes.is_some() || self.fraction < 1.0
    }

    /// Returns the limit on a device of this size.
    pub fn on(&self, device_bytes: u64) -> Option<u64> {
        let share = (self.fraction < 1.0).then(|| rounded(self.fraction, device_bytes));
        match (self.bytes, share) {
            (Some(bytes), Some(share)) => Some(bytes.min(share)),
            (bytes, share) => bytes.or(share),
        }
    }
}

impl Default for Chunks {
    /// Returns Paddle's defaults.
    fn default() -> Chunks {
        Chunks { fraction: 0.92, first_bytes: None, next_bytes: None }
    }
}

impl Chunks {
    /// Returns the size of the next chunk, given the free memory. `first` is set if there is no
    /// chunk yet.
    pub fn bytes(&self, first: bool, free_bytes: u64) -> u64 {
        let asked_bytes = if first { self.first_bytes } else { self.next_bytes };
        let bytes = asked_bytes.unwrap_or_else(|| rounded(self.fraction, free_bytes));
        bytes - bytes % SEGMENT_ROUNDING_BYTES
    }

    /// Returns the size above which requests are not served from chunks. Used before the first
    /// chunk is reserved.
    pub fn request_bytes_max(&self, free_bytes: u64) -> u64 {
        self.bytes(true, free_bytes).max(self.bytes(false, free_bytes))
    }
}

/// How long unused memory is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdleRelease {
    /// A few seconds, and longer if released memory is requested again: Note [Decay] of the core.
    #[default]
    Auto,
    /// This many seconds.
    After(u32),
    Never,
}

impl IdleRelease {
    /// Returns the seconds that the user has set.
    pub fn seconds(self) -> Option<u32> {
        match self {
            IdleRelease::After(seconds) => Some(seconds),
            IdleRelease::Auto | IdleRelease::Never => None,
        }
    }
}

fn rounded(fraction: f64, bytes: u64) -> u64 {
    (fraction * bytes as f64 + 0.5) as u64
}
