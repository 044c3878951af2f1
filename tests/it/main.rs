//! Real programs in real processes, under the preloaded library, on the simulated driver.

mod answers;
mod bad_input;
mod broken;
mod deep;
mod doors;
mod faults;
mod hazards;
mod header;
mod idle;
mod instructions;
mod ipc;
mod limits;
mod lookups;
mod matrix;
mod memory_hooks;
mod options;
mod processes;
mod random;
mod recording;
mod resolver;
mod samples;
mod shape;
mod snapshots;
mod tidy;
mod transparency;
mod triggers;
