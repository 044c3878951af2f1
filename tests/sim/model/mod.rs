//! The model of a GPU, in reading order: clocks and races, work and time, what has an address, what
//! orders work, what records it, and the one lock around all of it.

pub mod races;

pub mod work;

pub mod memory;

pub mod contexts;

pub mod graphs;

pub mod handles;
pub mod world;
