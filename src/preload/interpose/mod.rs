//! Ways by which a program gets the library's pointers, and the functions of the C library that it
//! replaces.

pub(crate) mod dlsym;
pub(crate) mod doors;
pub(crate) mod exit;
pub(crate) mod prctl;
pub(crate) mod redirect;
pub(crate) mod references;
mod scope;
pub(crate) mod signals;
mod start;
pub(crate) mod substitute;
pub(crate) mod trampoline;
pub(crate) mod unload;
