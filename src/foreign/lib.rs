//! Access to what other users and processes may have made. Files are opened only by [`open`]: debug
//! information lies at paths that other users can often write to, such as next to a program, under
//! the name of a removed library, or in the path that a snapshot contains. In `/dev/shm` all users
//! may make files of any name ([`shared_memory`]). [`process`] tells whether a process that made
//! one is still alive, and [`symbols`] finds names and lines in such files.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod process;
mod safe_open;
pub mod shared_memory;
pub mod symbols;

pub use cachealloc_history::file::OwnFile;
pub use safe_open::{Makers, Way, is_trusted, open, open_where, own_proc, own_program};
