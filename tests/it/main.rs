//! Real programs in real processes, under the preloaded library, on the simulated driver.

mod command;
mod cost;
mod interpose;
mod memory;
mod ordering;
mod package;
mod process;
mod record;
mod tree;
