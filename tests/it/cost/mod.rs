//! Costs: instructions of a call, and how time and memory grow with the work.

mod growth;
mod growth_threads;
mod instructions;
mod kernels;
mod lines;
