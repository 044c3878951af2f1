//! When a snapshot is written, what is in it, and the thread that writes it.

pub(crate) mod contents;
pub(crate) mod outcomes;
pub(crate) mod recording;
pub(crate) mod stop;
pub(crate) mod triggers;
pub(crate) mod writer;
