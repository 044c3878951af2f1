//! Tests of the history's public interface. In reading order: recording, the text of stacks, the
//! soundness of snapshots, the files and their readers, and costs.

mod copies;
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
