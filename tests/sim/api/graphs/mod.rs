//! Captures and graphs.

pub mod capture;
pub mod executable;
pub mod graph;
pub mod node;
