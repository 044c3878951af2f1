//! Names and lines of addresses in object files.
//!
//! The bytes read and decompressed from a module's files are bounded ([`Files`]). Files are read
//! and not mapped: touching a mapping of a file that another process truncates raises SIGBUS.

mod files;
mod names;
mod object_file;

pub use files::Files;
pub use names::{Module, Named, Names};
pub use object_file::build_id;
