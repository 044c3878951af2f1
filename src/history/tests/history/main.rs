//! Tests of the history from the outside. In reading order: what is recorded, the text of stacks,
//! whether a snapshot is sound, the files and their readers, and what it costs.

mod merging;
mod restored;
mod rings;
mod stacks;

mod report;

mod random;
mod soundness;

mod annotations;
mod json;
mod python;
mod readers;
mod script;
#[path = "../../../../tests/skip.rs"]
mod skip;

mod files;
mod names;

mod speed;
