//! What calls made the driver take of a device for itself, as differences (`windows`): by context, with which it ends,
//! by part, and by the stack of the call.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_history::StackId;
use cachealloc_statistics::breakdown::Component;

use crate::heap;
use crate::lock::lock;
use crate::process::lock_timeout::LockWait;

static TAKEN: Mutex<Taken> = Mutex::new(Taken { rows: Vec::new(), missed: Vec::new() });
static ANY: AtomicBool = AtomicBool::new(false);

struct Taken {
    rows: Vec<Row>,
    /// By device, how many calls could not be measured.
    missed: Vec<(i32, u64)>,
}

/// Bytes are never 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub device: i32,
    pub context_id: u64,
    pub component: Component,
    /// `NONE` also for calls at the same time.
    pub stack: StackId,
    pub bytes: u64,
}

/// Whether anything was taken, ever.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// A call has taken this.
pub(crate) fn took(took: Row) {
    if heap::is_short() {
        return;
    }
    ANY.store(true, Ordering::Relaxed);
    let mut taken = lock(&TAKEN);
    let same = |row: &&mut Row| {
        (row.context_id, row.component, row.stack) == (took.context_id, took.component, took.stack)
    };
    match taken.rows.iter_mut().find(same) {
        Some(row) => row.bytes += took.bytes,
        None => taken.rows.push(took),
    }
}

/// A call has given this back: of what such calls took, and the same stack, first. What was taken before anything was
/// recorded has no row.
pub(crate) fn gave(gave: Row) {
    let mut taken = lock(&TAKEN);
    let mut left_bytes = gave.bytes;
    while left_bytes > 0 {
        let of_context = taken.rows.iter_mut().filter(|row| row.context_id == gave.context_id);
        let nearest =
            |row: &&mut Row| (row.component == gave.component, row.stack == gave.stack, row.bytes);
        let Some(row) = of_context.max_by_key(nearest) else { return };
        let bytes = row.bytes.min(left_bytes);
        row.bytes -= bytes;
        left_bytes -= bytes;
        taken.rows.retain(|row| row.bytes > 0);
    }
}

/// A call could not be measured.
pub(crate) fn missed(device: i32) {
    if heap::is_short() {
        return;
    }
    let mut taken = lock(&TAKEN);
    match taken.missed.iter_mut().find(|(of, _)| *of == device) {
        Some((_, count)) => *count += 1,
        None => taken.missed.push((device, 1)),
    }
}

/// The context is gone, and all this with it.
pub(crate) fn context_ended(context_id: u64) {
    lock(&TAKEN).rows.retain(|row| row.context_id != context_id);
}

/// All rows, and by device how many calls could not be measured.
pub(crate) fn all(wait: LockWait) -> (Vec<Row>, Vec<(i32, u64)>) {
    const SPARE: usize = 100;
    let Some(taken) = wait.lock(&TAKEN) else { return Default::default() };
    let (rows, missed) = (taken.rows.len(), taken.missed.len());
    drop(taken);
    // Before the lock: where there is no memory the writer gives up, and must hold no lock then.
    let mut all = (Vec::with_capacity(rows + SPARE), Vec::with_capacity(missed + SPARE));
    if let Some(taken) = wait.lock(&TAKEN) {
        let room = all.0.capacity();
        all.0.extend(taken.rows.iter().take(room));
        let room = all.1.capacity();
        all.1.extend(taken.missed.iter().take(room));
    }
    all
}
