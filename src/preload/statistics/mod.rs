//! Counters, and how they are read and shown. This file has what every context counts in addition
//! to the core.

pub(crate) mod counters;
pub(crate) mod live;
pub(crate) mod steady;
pub(crate) mod waits;
