//! The functions that programs call by our name.

pub mod api;
pub mod memory_api;
pub mod statistics;
