//! Starting a program under the library: which file is started in the end (`program`), which library
//! (`library`), whether the two will fit (`fit`), with what settings (`settings`), and how to stay
//! beside it (`watch`).

pub mod program;

pub mod library;

mod elf;
pub mod fit;

pub mod settings;

pub mod report;

pub mod watch;
