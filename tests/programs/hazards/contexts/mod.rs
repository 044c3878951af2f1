//! Several contexts of one process, their ends, and green contexts.

pub mod across;
pub mod ends;
pub mod green;
pub mod several;
