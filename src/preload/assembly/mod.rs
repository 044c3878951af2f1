//! Code that knows every module because it starts, ends or reports: the process, its contexts and
//! its numbers.

pub(crate) mod control;
pub(crate) mod creation;
pub(crate) mod end;
pub(crate) mod exit_table;
pub(crate) mod lifetime;
pub(crate) mod reading;
pub(crate) mod report;
pub(crate) mod startup_log;
