//! The memory that programs get: its amount, its kinds, its way back.

mod idle;
mod limits;
mod memory_hooks;
mod neighbours;
mod options;
mod out_of_memory;
mod pinned_again;
mod pitched;
mod room;
