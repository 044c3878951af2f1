//! Results of earlier work that the host reads, or memory of the host that the work reads.

pub mod copies;
pub mod in_graphs;
pub mod indirect;
pub mod reach;
pub mod results;
pub mod seldom;
pub mod sharing;
pub mod values;
