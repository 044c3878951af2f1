//! Names and lines of addresses in object files.
//!
//! What is read and decompressed of a module's files is bounded ([`Files`]). They are read and never mapped:
//! touching a mapping of a file that another process truncates is a SIGBUS.

mod files;
mod names;
mod object_file;

pub use files::Files;
pub use names::{Module, Named, Names};
pub use object_file::build_id;
