//! Releases memory to the driver. This file has what every context keeps for that.

pub(crate) mod idle;
pub(crate) mod reclaim;
pub(crate) mod scavenger;
