//! Between the program and the driver: how functions are found, and what else is loaded.

mod chain;
mod companions;
mod doors;
mod lookups;
mod missing;
mod resolver;
mod shape;
