//! `libcachealloc.so`: preloaded into a CUDA program that nobody recompiled.
//!
//! The route of a call, from the street to the bed (`src/README.md` tells the whole story):
//! `doors` hand our exports to the program, `functions` lists them, `hooks` turn C arguments into
//! questions, `runtime` answers them with the pure allocator and the ordering rules of
//! `cachealloc-core`, `record` remembers what happened, `driver` is the only place that calls the real `libcuda.so.1`.

mod books;
mod c_library;
pub mod clock;
pub mod config;
mod filter;
mod heap;
mod identity;
mod lock;
pub mod log;
mod undisturbed;

pub mod driver;
pub mod functions;
pub mod record;

mod exports;

pub mod doors;
pub mod hooks;
pub mod runtime;
