//! Persistent history: a file that is mapped into the process and backs its history. When the
//! process is killed, `cachealloc recover` finds everything that it had stored by then.
//!
//! * `layout` describes the file: a head, owners (one for each context, and one for each device's
//!   memory
//!   that the driver itself holds), a table of chunks, and the chunks.
//! * `log` is the format of the chunks with texts and stacks: consecutive records.
//! * `read` parses such a file, whatever it contains; `restore` makes a snapshot of it.
//!
//! Note [Killed at any instruction]. The file has each thread's stores in program order, up to the
//! one at which the process was killed; nothing else is guaranteed. Therefore a count is stored
//! after what it counts, and a header after its record. Each context's state is stored twice: in
//! its entries, and in the rows of its blocks and segments. Each entry is followed by the change of
//! the one row that it describes, under one lock. The rows may therefore lack the last entry, never
//! more, and replaying that entry repairs them.

pub mod layout;
pub mod log;
mod read;
mod restore;
mod words;

pub use read::{FileOwner, Leftover, Problem, ReadAt, read};
pub use restore::{Restored, restore, take_out};
pub use words::{Words, cut, header, take_apart};
