//! The boundary to the real CUDA driver. Knows nothing about the allocator.

pub mod api;
pub mod graphs;
#[cfg(target_env = "gnu")]
mod old_glibc;
pub mod sys;
pub mod table;
