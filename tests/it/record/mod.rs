//! What is recorded: histories, snapshots and statistics.

mod interleaving;
mod late_python;
mod ranges;
mod recording;
pub(crate) mod recover;
pub(crate) mod snapshots;
pub(crate) mod statistics;
mod triggers;
