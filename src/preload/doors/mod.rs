//! The ways in which a program finds a driver function: exported symbols (`crate::functions`),
//! `dlsym`, and `cuGetProcAddress` (`hooks::resolve`). All of them ask the real resolver first
//! and then replace the *pointer*: never by the requested name alone.
//!
//! And the functions of the C library that we stand in front of, for other reasons.

pub mod api;
pub mod dlsym;
pub mod exit;
pub mod memory_api;
pub mod signals;
pub mod statistics;
pub mod substitute;
pub mod trampoline;
pub mod unload;
