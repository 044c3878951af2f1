//! Starting a program under the library: which file is started in the end (`program`), which
//! library (`library`), whether the two will fit (`fit`), with what settings (`settings`, and
//! `uncached` for frameworks), and how to stay beside it (`watch`) and what is made of what it
//! leaves (`recording`, `report`, `limits`).

pub(crate) mod program;

pub(crate) mod library;

pub(crate) mod elf;
pub(crate) mod fit;

pub(crate) mod settings;

pub(crate) mod uncached;

pub(crate) mod limits;
pub(crate) mod recording;
pub(crate) mod report;

pub(crate) mod watch;
