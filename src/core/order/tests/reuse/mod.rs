//! Reuse in captures: the blocks that the rules hand out, checked against the order that the graph
//! then allows.
//!
//! * `graph`: a graph and its streams, as a driver captures them, and a naive model of its replays.
//! * `world`: programs that allocate, free and launch in a capture, and an allocator of our rules.
//! * `programs`: all small programs, many long random ones, and each rule switched off.
//! * `cases`: the cases from which the rules were drawn, by name.
//! * `cost`: the cost of asking a capture.

mod graph;
mod world;

mod cases;
mod cost;
mod programs;
