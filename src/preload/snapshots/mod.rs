//! When a snapshot is written, what is in it, and the thread that writes it.

pub mod contents;
pub mod past;
pub mod recording;
pub mod stop;
pub mod triggers;
pub mod writer;
