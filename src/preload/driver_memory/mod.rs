//! Memory that the driver serves the program directly, and the limit that it shares with the cache.

pub(crate) mod breakdown;
pub(crate) mod cut;
pub(crate) mod ending;
pub(crate) mod first_uses;
pub(crate) mod forecast;
pub(crate) mod implicit_usage;
pub(crate) mod intervals;
pub(crate) mod limits;
pub(crate) mod measured;
pub(crate) mod notify;
pub(crate) mod pool_devices;
pub(crate) mod table;
pub(crate) mod tally;
