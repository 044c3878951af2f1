//! Reads snapshots, of cachealloc and PyTorch, and computes what holds the memory.
//!
//! [`read()`] makes a [`model::Snapshot`] of a file. Everything else is pure functions of that.
//!
//! The promise: whatever is in a file, there is a snapshot or a sentence that says why not; no
//! panic, and no more memory than a few times the file's size. Nothing here prints, and nothing but
//! the symboliser opens a file.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

// From a file to the model.
pub mod model;
mod read;

pub use read::{ReadError, read};

// From the model to what happened.
mod lifetimes;
mod passes;
mod replay;
mod reserved;
mod segments;
mod series;
mod when;

// Where the memory of a device was.
mod breakdowns;

// By call site.
mod failed_allocations;
mod failures;
mod find;
mod fragmentation;
mod sites;
mod temporary;
pub mod waste;

// What a person is shown of it.
pub mod names;
mod site_frames;
pub mod symbols;

// In the words of other tools.
pub mod formats;

// Several files at once.
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
