//! A program switches the recording on and off while it runs (`cachealloc_record`).
//!
//! Each context begins and ends under its allocator's lock, so that its entries are one story from then
//! on: first nobody records, then all are told to forget, then the word goes out, then each context
//! begins from what it holds. What a thread does in between is not recorded, and no entry tells of it.

use std::sync::Mutex;

use cachealloc_core::options::Record;

use crate::record::{self, capture, foreign};
use crate::runtime::contexts::{self, Context};
use crate::runtime::{alloc, lock, process, snapshot, snapshots};

/// Records so much from here on, and nothing of before. Call without a lock of ours.
pub fn switch(level: Record) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    record::set_level(Record::Off);
    each(|context| context.recorder.end(&mut lock(&context.allocator)));
    foreign::forget();
    if level == Record::Off {
        return;
    }
    capture::start();
    record::set_level(level);
    each(|context| {
        alloc::empty_lookaside(context);
        context.recorder.begin(&mut lock(&context.allocator), snapshot::requested);
    });
    if process::is_ours() {
        process::watch_end();
        snapshots::start();
    }
}

/// A context that is being met has looked whether it should record.
fn each(body: impl FnMut(&'static Context)) {
    contexts::settle();
    contexts::all().for_each(body);
}
