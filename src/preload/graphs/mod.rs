//! Captures and their memory.

pub mod captured_work;
pub mod graph_memory;
pub mod names;
pub mod open_captures;
pub mod participants;
pub mod pool_life;
pub mod private_pools;
