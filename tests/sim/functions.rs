//! The export table, expanded by `build.rs`, and a stub for each function not modelled.

#![allow(non_snake_case)]

pub struct Function {
    pub symbol: &'static str,
    /// Name without version and per-thread suffixes; empty if no look-up finds it.
    pub base: &'static str,
    /// First version of the interface that this symbol serves.
    pub api_version: i32,
    pub per_thread: bool,
    pub address: Address,
}

/// Address of a function of this library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address(pub *const ());

// SAFETY: an address of code; nothing is ever read or written through it here.
unsafe impl Sync for Address {}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));
