//! The boundary to the real CUDA driver. Nothing here knows our allocator.

pub mod api;
pub mod sys;
pub mod table;
