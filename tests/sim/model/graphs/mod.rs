//! Captures, which record work, and the graphs that they become.

pub mod capture;
pub mod executable;
pub mod graph;
pub mod recapture;
pub mod user_object;
