//! Statistics as text for people.

mod process;
pub mod sites;
mod table;
mod units;

pub use cachealloc_text::{bytes, count};
pub use process::{holders, process};
pub use table::{Column, Table};
pub use units::{per_second, share, time};
