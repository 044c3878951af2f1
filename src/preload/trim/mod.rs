//! Memory goes back to the driver.

pub mod idle;
pub mod release;
pub mod scavenger;
