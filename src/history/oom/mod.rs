//! Requests that found no memory: what is recorded of one, its report, and why the free memory did
//! not serve.

pub(crate) mod data;
pub(crate) mod kind;
pub(crate) mod report;
mod stack_text;
pub(crate) mod why;
