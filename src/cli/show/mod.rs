//! Statistics as text for people.

mod process;
pub(crate) mod sites;
mod table;
mod units;

pub(crate) use cachealloc_text::{bytes, count};
pub(crate) use process::{holders, process};
pub(crate) use table::{Column, Table};
pub(crate) use units::{per_second, share, time};
