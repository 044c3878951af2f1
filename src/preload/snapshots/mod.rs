//! When snapshots are written, what they contain, and the thread that writes them.

pub(crate) mod contents;
pub(crate) mod cut;
pub(crate) mod outcomes;
pub(crate) mod recording;
pub(crate) mod stop;
pub(crate) mod triggers;
pub(crate) mod writer;
