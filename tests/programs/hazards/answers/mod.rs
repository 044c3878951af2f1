//! Calls that the driver refuses, and addresses and handles that it reuses.

pub mod refused;
pub mod reused_handles;
pub mod wrong_frees;
