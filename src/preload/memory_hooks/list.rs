//! The installed memory hooks: those pushed by each thread, and the one of the process.

use core::cell::RefCell;
use core::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::gate;
use crate::memory_hooks::plugin;
use crate::memory_hooks::table::{Callback, Event, Table};

/// Maximum number of hooks that one thread has pushed.
const PUSHED_MAX: usize = 16;

thread_local! {
    /// Oldest first. It has a destructor, and is touched only while a hook is installed.
    static PUSHED: RefCell<Vec<Hook>> = const { RefCell::new(Vec::new()) };
}

/// An installed hook. While it lives, every allocation is observed.
pub(super) struct Hook {
    table: Table,
    name: String,
    /// Where the program keeps the table, which identifies the hook for `pop`.
    key: *const Table,
    serial: u64,
}

impl Hook {
    pub(super) fn new(table: Table, name: String, key: *const Table) -> Hook {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        gate::add_memory_hook();
        Hook { table, name, key, serial: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        gate::remove_memory_hook();
    }
}

/// Serial numbers of the hooks of one call. Some hooks may be removed before they are called.
#[derive(Default)]
pub(super) struct Serials {
    serials: [u64; PUSHED_MAX + 1],
    count: usize,
}

impl Serials {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.serials[..self.count].iter().copied()
    }

    fn push(&mut self, serial: u64) {
        self.serials[self.count] = serial;
        self.count += 1;
    }
}

/// Installs a hook for the calling thread. Returns 0 or an `errno`.
///
/// # Safety
///
/// `key` must be null or point to a table with the length given in its `size`, with a name that is
/// null or a C string.
pub(crate) unsafe fn push(key: *const Table) -> c_int {
    // SAFETY: the caller's promise.
    let Some(table) = (unsafe { Table::read(key) }) else { return libc::EINVAL };
    let pushed = PUSHED.try_with(|pushed| {
        let mut pushed = pushed.borrow_mut();
        if pushed.iter().any(|hook| hook.key == key) {
            return libc::EEXIST;
        }
        if pushed.len() == PUSHED_MAX {
            return libc::ENOMEM;
        }
        // SAFETY: the caller's promise.
        let name = unsafe { table.name() };
        pushed.push(Hook::new(table, name, key));
        0
    });
    // No thread-local value: the thread is about to end.
    pushed.unwrap_or(libc::ESRCH)
}

/// Removes this table's hook from the calling thread. Returns 0 or an `errno`.
pub(crate) fn pop(key: *const Table) -> c_int {
    let popped = PUSHED.try_with(|pushed| {
        let mut pushed = pushed.borrow_mut();
        let index = pushed.iter().position(|hook| hook.key == key)?;
        Some(pushed.remove(index))
    });
    if popped.ok().flatten().is_some() { 0 } else { libc::ENOENT }
}

/// Returns the hooks that observe a call beginning now: first the hook of the process, then those
/// of the thread in the order they were pushed.
pub(super) fn serials() -> Serials {
    let mut serials = Serials::default();
    plugin::hook().iter().for_each(|hook| serials.push(hook.serial));
    let _ = PUSHED.try_with(|pushed| {
        pushed.borrow().iter().for_each(|hook| serials.push(hook.serial));
    });
    serials
}

/// Returns the callback of a hook that is still installed.
pub(super) fn callback(serial: u64, event: Event) -> Option<(Callback, usize)> {
    let of_process = plugin::hook().filter(|hook| hook.serial == serial);
    if let Some(hook) = of_process {
        return hook.table.callback(event);
    }
    let of_thread = PUSHED.try_with(|pushed| {
        let pushed = pushed.borrow();
        pushed.iter().find(|hook| hook.serial == serial)?.table.callback(event)
    });
    of_thread.ok().flatten()
}

/// Removes a hook and returns its name.
pub(super) fn remove(serial: u64) -> String {
    if plugin::hook().is_some_and(|hook| hook.serial == serial) {
        return plugin::remove();
    }
    let removed = PUSHED.try_with(|pushed| {
        let mut pushed = pushed.borrow_mut();
        let index = pushed.iter().position(|hook| hook.serial == serial)?;
        Some(pushed.remove(index))
    });
    removed.ok().flatten().map(|hook| hook.name().to_string()).unwrap_or_default()
}
