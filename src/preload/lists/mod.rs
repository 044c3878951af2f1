//! Lists and tables for any part of the library.

pub(crate) mod hash;
pub(crate) mod intrusive_stack;
pub(crate) mod recent;
