//! Reuse in captures: what the rules hand out, against what the graph then allows.
//!
//! * `graph`: a graph and its streams, as a driver captures them; what a replay may do, naively.
//! * `world`: programs that allocate, free and launch in a capture, and an allocator of our rules.
//! * `programs`: all small programs, many long random ones, and each rule switched off.
//! * `cases`: the cases that the rules were drawn from, by name.
//! * `cost`: how much asking a capture costs.

mod graph;
mod world;

mod cases;
mod cost;
mod programs;
