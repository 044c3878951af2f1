//! The simulated driver: a `libcuda.so.1` in memory.
//!
//! A program linked or loaded against it runs without a GPU and finds out whether it relied on an
//! order that CUDA does not promise. Streams run on virtual time, memory has real contents that
//! change as virtual time passes, and every access is checked against what its operation can know
//! to have happened before (`model/races/shadow.rs`).
//!
//! `api/` holds the exported functions, one call deep; `model/` what they mean; `call.rs`
//! what every call has in common. `build.rs` makes the export table.

// The exported functions have no callers inside, and unit tests export nothing.
#![cfg_attr(test, allow(dead_code))]

mod abi;
mod api;
mod call;
mod exit;
mod faults;
mod functions;
mod logs;
mod model;
mod report;
mod standstill;
