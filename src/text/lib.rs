//! Texts for people and programs: amounts, names that come from elsewhere, JSON.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod json;
mod plain;
mod size;
mod units;

pub use json::{Json, escaped};
pub use plain::{cut, is_steering, plain};
pub use size::size;
pub use units::{Bytes, Count, Share, Time, age, bytes, count, per_second, plural, share, time};
