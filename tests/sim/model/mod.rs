//! The model, in reading order: clocks and races, operations and time, what has an address,
//! what orders work, what records it, and the one lock around all of it.

pub mod clock;
pub mod code;
pub mod shadow;

pub mod callbacks;
pub mod effects;
pub mod engine;
pub mod kernels;
pub mod op;

pub mod array;
pub mod backing;
pub mod memory;
pub mod pool;
pub mod raw;
pub mod share;
pub mod space;
pub mod vmm;

pub mod context;
pub mod event;
pub mod module;
pub mod stream;

pub mod capture;
pub mod executable;
pub mod graph;
pub mod user_object;

pub mod handles;
pub mod ipc;
pub mod world;
