//! The persistent history: a file in `/dev/shm`, mapped into the process, that survives it. Its
//! layout is `cachealloc_history::persistent`. The file is removed at a clean end; if the process
//! is killed, `cachealloc recover` makes a snapshot of it.
//!
//! Note [Lasting]. The rings, the rows and the stacks are stored there and nowhere else, so
//! recording them costs no more than without. A write to a page of such a file is a SIGBUS if the
//! system has no memory for it. So the kernel fetches each chunk first (`fetch`), which reports
//! missing memory. The file grows only while half of the file system is free, because other
//! processes in a container share it and fail when it is full. Otherwise the history moves back
//! into the process's own memory, with a log line, and the file is removed. If another process
//! truncates the file, that is a SIGBUS as well: its mode lets only root write it.
//!
//! The file is not kept open: programs close descriptors that they do not know. A forked child does
//! not have the mapping: nothing is recorded there, and the memory is freed with this process.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use cachealloc_foreign::shared_memory::FOLDER;
use cachealloc_history::Settings;

use crate::thread_state::with_thread_state_saved;
use crate::{identity, log, record, seccomp};

mod area;
mod chunks;
mod files;
mod names;
mod source;

use area::Area;
pub(crate) use names::{keep_up, next};
pub(crate) use source::{HistorySource, Pieces, ring, source};

static AREA: OnceLock<Option<Area>> = OnceLock::new();
/// Set once the file is of no use any longer, or is removed.
static OVER: AtomicBool = AtomicBool::new(false);
/// Set if the process ends without the promised snapshot: the file stays.
static KEPT: AtomicBool = AtomicBool::new(false);

/// Creates the file and describes the process in it, if something is recorded. Call in a thread of
/// the program that may open files.
pub(crate) fn begin(settings: impl FnOnce() -> Settings) {
    if record::is_on() && make_once().is_some() {
        with_thread_state_saved(|| names::begin(settings));
    }
}

/// Writes what is recorded from here on.
pub(crate) fn note_settings() {
    if let Some(area) = made() {
        area.note_settings();
    }
}

/// Returns whether there is a file that survives if the process is killed.
pub(crate) fn is_on() -> bool {
    made().is_some()
}

/// Keeps the file, because the snapshot promised for the end is missing. Returns whether
/// `cachealloc recover` can make it.
pub(crate) fn keep() -> bool {
    KEPT.store(true, Ordering::SeqCst);
    is_on()
}

/// Removes the file when the process ends and all output is written. Safe in signal handlers; see
/// `live::end`.
pub(crate) fn end() {
    let is_wanted = identity::is_ours() && !KEPT.load(Ordering::SeqCst);
    if let Some(area) = made()
        && is_wanted
        && !seccomp::is_new()
        && !OVER.swap(true, Ordering::SeqCst)
    {
        area.end();
    }
}

/// Returns the area, if it exists already.
fn made() -> Option<&'static Area> {
    AREA.get()?.as_ref().filter(|_| !OVER.load(Ordering::Relaxed))
}

fn make_once() -> Option<&'static Area> {
    let make = || {
        if !record::is_on() || !identity::is_ours() || seccomp::is_new() {
            return None;
        }
        with_thread_state_saved(Area::make)
            .inspect_err(|error| {
                log::warn(format_args!("history will not survive a crash: {FOLDER}: {error}"));
            })
            .ok()
    };
    AREA.get_or_init(make).as_ref().filter(|_| !OVER.load(Ordering::Relaxed))
}
