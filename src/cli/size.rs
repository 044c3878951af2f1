//! Parses amounts of memory on the command line.

pub(crate) use cachealloc_text::size as parse;

/// Description of a valid size, for error messages.
pub(crate) const ALLOWED: &str = "a size such as 4G or 512M";
