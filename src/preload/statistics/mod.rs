//! Counters, reading them, and where they are shown.

pub mod live;
pub mod orders;
pub mod reading;
pub mod report;
pub mod stats;
pub mod waits;
