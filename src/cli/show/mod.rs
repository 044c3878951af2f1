//! Statistics as text for people.

mod process;
pub mod sites;
mod table;
mod units;

pub use process::{holders, process};
pub use table::{Column, Table};
pub use units::{bytes, count, per_second, share, time};
