//! Snapshots that want to do harm: whatever is in a file, reading it and saying what is in it takes memory and
//! time in proportion to the file, or it is refused in a sentence.

mod bombs;
mod counting;
mod files;
mod leftovers;
mod mutations;
mod pickle;
mod work;
