//! Amounts of memory on the command line.

pub(crate) use cachealloc_text::size as parse;

/// What to write where a size is wanted.
pub(crate) const ALLOWED: &str = "a size such as 4G or 512M";
