//! The boundary to the real CUDA driver. Knows nothing about the allocator.

pub(crate) mod api;
pub(crate) mod changes;
pub(crate) mod graphs;
pub(crate) mod hardware;
pub(crate) mod libraries;
#[cfg(target_env = "gnu")]
mod old_glibc;
pub(crate) mod sys;
pub(crate) mod table;
