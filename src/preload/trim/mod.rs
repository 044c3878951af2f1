//! Returns memory to the driver.

pub(crate) mod idle;
pub(crate) mod reclaim;
pub(crate) mod scavenger;
