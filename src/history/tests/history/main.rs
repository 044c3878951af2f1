//! Tests of the history from the outside. In reading order: what is recorded, the text of stacks,
//! whether a snapshot is sound, and the files.

mod speed;
