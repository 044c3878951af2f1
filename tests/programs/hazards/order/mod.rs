//! Later work, on any stream and of any thread, is ordered after the work before a free.

pub mod each_stream;
pub mod later_work;
pub mod one_stream;
pub mod teardown;
pub mod threads;
