//! How a program gets our pointers, and the functions of the C library that we stand in front of.

pub mod dlsym;
pub mod exit;
pub mod signals;
pub mod substitute;
pub mod trampoline;
pub mod unload;
