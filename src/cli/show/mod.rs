//! Formats statistics as text for people.

pub(crate) mod breakdown;
pub(crate) mod find;
pub(crate) mod findings;
pub(crate) mod fit;
mod process;
mod prometheus;
mod site_table;
pub(crate) mod sites;
mod table;

pub(crate) use cachealloc_text::{bytes, count, per_second, plural, share, time};
pub(crate) use process::{holders, process, words};
pub(crate) use prometheus::{Exposition, Scraped, prometheus};
pub(crate) use site_table::{json_with_places, places, steady_ended_by};
pub(crate) use table::{Column, Table, cut_middle, has_colors, wrapped_for_terminal};

/// Formats an increase or decrease.
pub(crate) fn signed_bytes(change: i128) -> String {
    signed(change, bytes)
}

pub(crate) fn signed(change: i128, show: impl Fn(u64) -> String) -> String {
    let sign = match change {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    let amount = u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", show(amount))
}
