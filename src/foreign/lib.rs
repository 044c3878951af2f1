//! What other users and processes may have made. Files come in through one door ([`open`]): debug information
//! lies at paths that other users can often write to, beside a program, under the name of a library that was
//! removed, in the path that a snapshot names; and in `/dev/shm` all users may make files of any name.
//! [`process`] says whether a process that made one still lives, [`symbols`] finds names and lines in such files.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod process;
mod safe_open;
pub mod symbols;

pub use cachealloc_history::file::OwnFile;
pub use safe_open::{Makers, Way, is_trusted, open, open_where, own_proc, own_program};
