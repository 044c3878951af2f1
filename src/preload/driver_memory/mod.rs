//! What the driver serves the program itself, and the limit that it shares with the cache.

pub mod claims;
pub mod ending;
pub mod limits;
pub mod pool_devices;
pub mod serving;
pub mod table;
