//! Reads snapshots of cachealloc and PyTorch, and computes what holds the memory.
//!
//! [`read()`] makes a [`model::Snapshot`] of a file. Everything else is pure functions of it.
//!
//! For any file, `read()` returns a snapshot or an error that says what is wrong. It never panics,
//! and needs at most a few times the memory of the file. Nothing here prints, and only the
//! symboliser opens other files.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

// File to model.
pub mod model;
mod read;

pub use read::{ReadError, read};

// Model to history.
mod lifetimes;
mod passes;
mod replay;
mod reserved;
mod segments;
mod series;
mod when;

// Memory breakdowns of devices.
mod breakdowns;

// Memory by call site.
mod failed_allocations;
mod failures;
mod find;
mod fragmentation;
mod sites;
mod temporary;
pub mod waste;

// Names for people.
pub mod names;
mod site_frames;
pub mod symbols;

// Formats of other tools.
pub mod formats;

// Several files.
mod aggregate;
mod difference;

pub use aggregate::{Aggregate, DeviceSums, Group};
pub use breakdowns::breakdowns;
pub use difference::{SiteChange, difference};
pub use failed_allocations::{Shortage, shortages};
pub use failures::{Failure, failure_of, failures, overcame_others};
pub use find::{
    BesideBlock, Found, NamedLife, Place, find, moment_of_version, version_of, versions_of,
};
pub use fragmentation::{AdjacentFree, adjacent_free};
pub use lifetimes::{Lifetime, Lifetimes, Moment};
pub use passes::{PASS_DEPTH_MAX, Pass, Passes};
pub use reserved::Reserved;
pub use segments::{Usage, reserved_over_time};
pub use series::{by_group, telling_moments};
pub use site_frames::{Weighed, candidates, site_frames};
pub use sites::{Site, SiteKey, Totals, sites, sites_of_ranges};
pub use temporary::{OTHERS_BETWEEN_MAX, temporary};
pub use when::{WHEN_ALLOWED, When};
