//! What knows every room because it starts, ends or reports: the process, its contexts, its numbers.

pub(crate) mod control;
pub(crate) mod creation;
pub(crate) mod end;
pub(crate) mod exit_table;
pub(crate) mod lifetime;
pub(crate) mod reading;
pub(crate) mod report;
pub(crate) mod startup_log;
