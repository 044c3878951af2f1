//! The boundary to the real CUDA driver. Nothing here knows our allocator.

pub mod api;
pub mod graphs;
#[cfg(target_env = "gnu")]
mod old_glibc;
pub mod sys;
pub mod table;
