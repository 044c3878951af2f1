//! Malicious snapshots: reading any file and describing its contents takes memory and time in
//! proportion to the file, or the file is rejected with a message.

mod bombs;
mod counting;
mod files;
mod leftovers;
mod mutations;
mod pickle;
mod work;
