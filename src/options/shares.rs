//! How much of a device the process takes: what it may hold at most, in which portions, and when it
//! gives back what it does not use.

use cachealloc_core::policy::SEGMENT_ROUNDING_BYTES;

/// What the process may hold of each device. Of two limits the smaller one holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limit {
    pub bytes: Option<u64>,
    /// Of all memory of the device; 1: no limit.
    pub fraction: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Segments as they are needed.
    AutoGrowth,
    /// A chunk at the first request, from which all that fit are served.
    PreAllocate,
}

/// Sizes of the chunks of [`Strategy::PreAllocate`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chunks {
    /// Of what is free when a chunk is reserved. 0: nothing is cached, whatever the strategy.
    pub fraction: f64,
    pub first_bytes: Option<u64>,
    /// Of the chunks after the first.
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

    /// On a device of this size.
    pub fn on(&self, device_bytes: u64) -> Option<u64> {
        let share = (self.fraction < 1.0).then(|| rounded(self.fraction, device_bytes));
        match (self.bytes, share) {
            (Some(bytes), Some(share)) => Some(bytes.min(share)),
            (bytes, share) => bytes.or(share),
        }
    }
}

impl Default for Chunks {
    /// Paddle's.
    fn default() -> Chunks {
        Chunks { fraction: 0.92, first_bytes: None, next_bytes: None }
    }
}

impl Chunks {
    /// The next chunk, where so much is free. `first`: there is none yet.
    pub fn bytes(&self, first: bool, free_bytes: u64) -> u64 {
        let asked_bytes = if first { self.first_bytes } else { self.next_bytes };
        let bytes = asked_bytes.unwrap_or_else(|| rounded(self.fraction, free_bytes));
        bytes - bytes % SEGMENT_ROUNDING_BYTES
    }

    /// Larger requests are not served from chunks. Asked before there is a chunk.
    pub fn request_bytes_max(&self, free_bytes: u64) -> u64 {
        self.bytes(true, free_bytes).max(self.bytes(false, free_bytes))
    }
}

/// For how long memory is kept that nothing uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IdleRelease {
    /// A few seconds, and longer where what was released is asked for again: Note [Decay] of the core.
    #[default]
    Auto,
    /// So many seconds.
    After(u32),
    Never,
}

impl IdleRelease {
    /// The seconds that the user has said.
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
