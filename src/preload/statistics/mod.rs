//! Counters, reading them, and where they are shown.

pub mod counters;
pub mod exit_table;
pub mod live;
pub mod orders;
pub mod reading;
pub mod report;
pub mod waits;
