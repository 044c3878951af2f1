//! The memory that programs get: how much, of which kinds, and how it is released.

mod idle;
mod limits;
mod memory_hooks;
mod neighbours;
mod options;
mod out_of_memory;
mod pinned_again;
mod pitched;
mod room;
