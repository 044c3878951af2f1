//! Accepted options that have no effect here. They are checked as strictly as the others, so that a
//! typo is found.

use crate::readers::{self as read, Malformed, boolean, mebibytes};
use crate::row::{Kind, Setter};

pub(crate) const FLAG: (Kind, Setter) = (Kind::Boolean, |_, value| boolean(value).map(drop));
pub(crate) const BACKEND: (Kind, Setter) =
    (Kind::Word(|| vec!["native", "cudaMallocAsync"]), |_, value| {
        let is_known = ["native", "cudaMallocAsync", "hipMallocAsync"].contains(&value);
        if is_known { Ok(()) } else { Err(Malformed) }
    });
pub(crate) const RESERVE: (Kind, Setter) = (
    Kind::Other("text", "a share of the device, a number of GiB such as 80G, or default"),
    |_, value| read::unless("default", value, read::reserve).map(drop),
);
pub(crate) const CLASSES: (Kind, Setter) =
    (Kind::Other("list", "a list such as [name:0.5], or default"), |_, value| {
        read::unless("default", value, read::reserves).map(drop)
    });
pub(crate) const THREADS: (Kind, Setter) =
    (Kind::Other("count", "a power of two up to 128"), |_, value| {
        if read::power_of_two(value)? <= 128 { Ok(()) } else { Err(Malformed) }
    });
pub(crate) const PINNED_RESERVE: (Kind, Setter) =
    (Kind::Other("MiB", "a whole number above 0, or none"), |_, value| {
        let bytes = read::unless("none", value, mebibytes)?;
        if bytes == Some(0) { Err(Malformed) } else { Ok(()) }
    });
pub(crate) const PINNED_MAX: (Kind, Setter) =
    (Kind::Other("MiB", "a whole number, or unlimited"), |_, value| {
        read::unless("unlimited", value, mebibytes).map(drop)
    });

pub(crate) const NO_LOCK: &str = "no lock that hits need is held while the driver allocates";
pub(crate) const CACHE_FIRST: &str =
    "the driver fails a request only if the device is full, so the cache releases memory first";
pub(crate) const ENOUGH_ADDRESSES: &str = "addresses for twice the device's memory are reserved";
pub(crate) const NOT_PINNED: &str = "host_cache_mb limits the pinned memory kept";
