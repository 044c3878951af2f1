//! The history in memory that outlives the process: a file in `/dev/shm` that is mapped into it, whose layout
//! is `cachealloc_history::persistent`. It goes at a clean end; when the process is killed, `cachealloc recover`
//! makes a snapshot of it.
//!
//! Note [Lasting]. The rings, the rows and the stacks lie there and nowhere else, so recording them costs what
//! it costs without. Writing to a page of such a file that the system has no memory for is a SIGBUS, so each chunk
//! is fetched by the kernel first (`fetch`), which says where there is none; and the file takes memory only
//! while half of the file system is free, because others in a container share it and die of its end. Where
//! that is not so, the history moves back into the process's own memory, with a line, and the file goes.
//! A file that another process cuts short is a SIGBUS as well: its mode lets only root write it.
//!
//! The file is not kept open: programs close descriptors that they do not know. A forked child does not
//! have the mapping: nothing is recorded there, and the memory goes with this process.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

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

const FOLDER: &str = "/dev/shm";

static AREA: OnceLock<Option<Area>> = OnceLock::new();
/// The file is of no use any longer, or has gone.
static OVER: AtomicBool = AtomicBool::new(false);
/// The process ends without the snapshot that was promised: the file stays.
static KEPT: AtomicBool = AtomicBool::new(false);

/// Makes ready where something is recorded: the file, and what it says of the process. In a thread of the
/// program that may open files.
pub(crate) fn begin(settings: impl FnOnce() -> Settings) {
    if record::is_on() && make_once().is_some() {
        with_thread_state_saved(|| names::begin(settings));
    }
}

/// Says what is recorded from here on.
pub(crate) fn note_settings() {
    if let Some(area) = made() {
        area.note_settings();
    }
}

/// Whether there is a file that a process which is killed leaves.
pub(crate) fn is_on() -> bool {
    made().is_some()
}

/// The snapshot that was promised for the end does not come. Returns whether `cachealloc recover` can make it.
pub(crate) fn keep() -> bool {
    KEPT.store(true, Ordering::SeqCst);
    is_on()
}

/// The process ends, and all that it had to say is written. For signal handlers, too; see `live::end`.
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

/// The area, if there is one already.
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
                log::warn(format_args!("a kill would lose what is recorded: {FOLDER}: {error}"));
            })
            .ok()
    };
    AREA.get_or_init(make).as_ref().filter(|_| !OVER.load(Ordering::Relaxed))
}
