//! The source tree itself: its layers, its texts, its scripts and samples.

pub(crate) mod documents;
mod gpu;
mod header;
mod hooks;
mod layers;
pub(crate) mod samples;
mod tidy;
mod wording;
