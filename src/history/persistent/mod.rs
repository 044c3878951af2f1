//! The history where it outlives the process: a file that is mapped into it, and whose pages are its memory.
//! When the process is killed, whatever it had stored by then is there for `cachealloc recover`.
//!
//! * `layout` is the file: a head, owners (one for each context, and one for each device's memory of the
//!   driver's own), a table of chunks, and the chunks.
//! * `log` is what the chunks of texts and stacks hold: records one after the other.
//! * `read` takes such a file apart, whatever is in it; `restore` makes a snapshot of it.
//!
//! Note [Killed at any instruction]. Each thread's stores are there in the order of the program, up to the one
//! at which the process was killed; nothing else is promised. So a number is stored after what it counts, and
//! a header after its record. What a context has is there twice, in its entries and in the rows of its
//! blocks and segments, and each entry is followed by the change of the one row that it tells of, under one
//! lock. So the rows may lack the last entry, never more, and doing that one again mends them.

pub mod layout;
pub mod log;
mod read;
mod restore;
mod words;

pub use read::{FileOwner, Leftover, Problem, ReadAt, read};
pub use restore::{Restored, restore, take_out};
pub use words::{Words, cut, header, take_apart};
