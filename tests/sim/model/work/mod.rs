//! Operations: what they change, when they run, and the driver's own threads.

pub mod callbacks;
pub mod effects;
pub mod engine;
pub mod kernels;
pub mod op;
