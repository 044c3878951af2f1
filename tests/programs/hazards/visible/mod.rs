//! Results of earlier work that the host reads, or memory of the host that the work reads.

pub mod copies;
pub mod indirect;
pub mod kept_addresses;
pub mod meanwhile;
pub mod reach;
pub mod results;
pub mod seldom;
pub mod sharing;
pub mod values;
