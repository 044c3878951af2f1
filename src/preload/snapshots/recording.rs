//! Changes of what is recorded while the program runs, requested by the program
//! (`cachealloc_record`) or by a control command of another process.
//!
//! All contexts change at one moment, with all their allocators locked, so their entries are
//! consistent from then on. A recording begins with the blocks that the context has; blocks freed
//! earlier have no entry.

use std::sync::{Mutex, MutexGuard};

use cachealloc_core::Allocator;
use cachealloc_options::{ENTRIES_MAX, Record};
use cachealloc_statistics::Recording;
use cachealloc_statistics::control::Change;

use crate::driver_memory::table;
use crate::graphs::graph_memory;
use crate::process::lock_timeout::LockWait;
use crate::record::settings;
use crate::record::{capture, persistent};
use crate::snapshots::{contents, cut, triggers, writer};
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::{identity, process};

/// Changes what is recorded from here on. If the recording continues without a `clear`, all records
/// of live blocks stay. The entries stay if their number and their kind do not change. The caller
/// must hold no lock of the library.
///
/// # Errors
///
/// Fails with EBUSY and changes nothing if a stopped thread holds a lock.
pub(crate) fn change(change: Change, wait: LockWait) -> Result<(), i32> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = wait.lock(&ONE_AT_A_TIME).ok_or(libc::EBUSY)?;
    let now = settings::now();
    let wanted = Recording {
        record: change.record,
        context: change.context.unwrap_or(now.context),
        stacks: change.stacks.unwrap_or(now.stacks),
        max_entries: change.max_entries.map_or(now.max_entries, |max| max.clamp(1, ENTRIES_MAX)),
        device: change.device.unwrap_or(now.device),
    };
    let is_on = wanted.record != Record::Off;
    if is_on {
        capture::start(wanted.stacks);
    }
    let growing = wait.lock(contexts::growing()).ok_or(libc::EBUSY)?;
    let mut all = Vec::new();
    for context in contexts::every().filter(|context| !context.is_dead()) {
        all.push((context, wait.lock(&context.allocator).ok_or(libc::EBUSY)?));
    }
    if is_on && now.record != Record::Off && !change.clear {
        go_on(&mut all, &now, wanted);
    } else {
        begin_anew(&mut all, wanted);
    }
    drop(all);
    drop(growing);
    if is_on && identity::is_ours() {
        process::watch_end();
        triggers::start();
        persistent::begin(contents::settings);
        // The writer may sleep without a timeout, because there was no persistent history to
        // update.
        writer::wake();
    }
    Ok(())
}

type Locked = (&'static Context, MutexGuard<'static, Allocator>);

fn begin_anew(all: &mut [Locked], wanted: Recording) {
    set(Recording { record: Record::Off, ..wanted });
    all.iter_mut().for_each(|(context, allocator)| context.recorder.end(allocator));
    if wanted.record != Record::Off {
        settings::note_partial();
        set(wanted);
        let included =
            all.iter_mut().filter(|(context, _)| settings::includes(&wanted, context.device));
        included.for_each(begin);
    }
    table::record(|_| false, false);
    graph_memory::forget_stacks();
}

fn go_on(all: &mut [Locked], now: &Recording, wanted: Recording) {
    let same = (now.record, now.max_entries) == (wanted.record, wanted.max_entries);
    if !same || now.device != wanted.device {
        settings::note_partial();
    }
    set(wanted);
    for locked in all {
        let (context, allocator) = &mut *locked;
        match (context.recorder.is_on(), settings::includes(&wanted, context.device)) {
            (true, true) if !same => context.recorder.forget_entries(allocator),
            (true, false) => context.recorder.end(allocator),
            (false, true) => begin(locked),
            _ => {}
        }
    }
    table::record(|device| settings::includes(&wanted, device), same);
}

/// Puts these settings in force.
fn set(settings: Recording) {
    settings::set(settings);
    persistent::note_settings();
}

fn begin((context, allocator): &mut Locked) {
    cut::empty_lists(context, allocator);
    context.recorder.begin(allocator, context.device, cut::requested);
}
