//! What happened before what, and accesses of the same bytes that no order separates.

pub mod clock;
pub mod shadow;
