//! Statistics as text for people.

pub(crate) mod account;
pub(crate) mod fit;
mod places;
mod process;
mod prometheus;
pub(crate) mod sites;
mod table;

pub(crate) use cachealloc_text::{bytes, count, per_second, plural, share, time};
pub(crate) use places::{json_with_places, places, steady_ended_by};
pub(crate) use process::{holders, process, words};
pub(crate) use prometheus::{Scraped, prometheus};
pub(crate) use table::{Column, Table};
