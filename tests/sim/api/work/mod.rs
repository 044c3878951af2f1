//! Copies, fills and launches, and their submission to a stream.

pub mod array_copy;
pub mod batch;
pub mod copy;
pub mod fill;
pub mod launch;
pub mod old_launch;
pub mod submit;
