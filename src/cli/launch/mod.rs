//! Starts a program under the library. `program` finds the file that is executed in the end,
//! `library` finds the library, and `fit` checks that it can be loaded. `settings` builds the
//! options (`uncached` those of frameworks), `watch` forwards signals and waits for the end, and
//! `recording`, `report` and `limits` process what the program leaves.

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
