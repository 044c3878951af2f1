//! The host process: its files, threads, children and end are its own.

mod apart;
mod bad_input;
pub(crate) mod children;
pub(crate) mod ends;
mod lives;
mod processes;
mod random_processes;
mod shared_memory;
mod storm;
mod transparency;
mod watchers;
