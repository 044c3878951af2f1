//! Calls that the driver refuses, and what it reuses: addresses and handles.

pub mod refused;
pub mod reused_handles;
pub mod wrong_frees;
