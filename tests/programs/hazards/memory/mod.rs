//! Memory that is scarce, of pools, ordered by streams, or of other processes.

pub mod full_cards;
pub mod in_flight;
pub mod ipc;
pub mod of_captures;
pub mod of_graphs;
pub mod pools;
pub mod scarce;
pub mod shortage;
pub mod stream_ordered;
