//! Device memory that the driver took for itself because of calls, as measured differences
//! (`intervals`). Kept by context, with which it ends, by component, and by the stack of the call.

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
    /// Number of calls that could not be measured, by device.
    missed: Vec<(i32, u64)>,
}

/// Memory taken by calls that share these attributes. `bytes` is not 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub device: i32,
    pub context_id: u64,
    pub component: Component,
    /// Stack of the call. Also `NONE` for simultaneous calls.
    pub stack: StackId,
    pub bytes: u64,
}

/// Whether anything has ever been taken.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Adds what a call has taken.
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

/// Subtracts what a call has released, first from rows of the same component and stack. What was
/// taken before recording began has no row.
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

/// Counts a call that could not be measured.
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

/// Removes the rows of a context that has ended.
pub(crate) fn context_ended(context_id: u64) {
    lock(&TAKEN).rows.retain(|row| row.context_id != context_id);
}

/// Returns all rows, and the number of unmeasured calls by device.
pub(crate) fn all(wait: LockWait) -> (Vec<Row>, Vec<(i32, u64)>) {
    const SPARE: usize = 100;
    let Some(taken) = wait.lock(&TAKEN) else { return Default::default() };
    let (rows, missed) = (taken.rows.len(), taken.missed.len());
    drop(taken);
    // Allocated before the lock is taken: without memory the writer gives up, and must then hold no
    // lock.
    let mut all = (Vec::with_capacity(rows + SPARE), Vec::with_capacity(missed + SPARE));
    if let Some(taken) = wait.lock(&TAKEN) {
        let room = all.0.capacity();
        all.0.extend(taken.rows.iter().take(room));
        let room = all.1.capacity();
        all.1.extend(taken.missed.iter().take(room));
    }
    all
}
