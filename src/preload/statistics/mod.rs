//! Counters, and the page that shows them to other processes.

pub(crate) mod counters;
pub(crate) mod live;
pub(crate) mod steady;
pub(crate) mod waits;
