//! Calls that wait too long, or for work that is submitted later.

pub mod beside_a_free;
pub mod deadlock;
pub mod served_at_once;
pub mod unbounded;
