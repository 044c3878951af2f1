//! The order of work: every program computes what it computes without the library.

mod answers;
mod bounds;
mod broken;
mod communication;
mod deep;
mod faults;
mod framework;
mod graphs;
pub(crate) mod hazards;
mod ipc;
mod judge;
mod matrix;
mod observers;
pub(crate) mod random;
mod refusals;
