//! What the driver serves the program itself, and the limit that it shares with the cache.

pub mod claims;
pub mod held_bytes;
pub mod limits;
