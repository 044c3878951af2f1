//! Returns memory to the driver. Here: what every context keeps for that.

pub(crate) mod idle;
pub(crate) mod reclaim;
pub(crate) mod scavenger;
