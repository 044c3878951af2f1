//! Functions named `sim_*`, by which a test queries and controls the simulation.
//!
//! A program looks them up by name, and works without them on a real GPU.

use std::ffi::{CStr, c_char};

use crate::call::thread_number;
use crate::model::races::shadow::{Access, AccessKind, HOST_STREAM, Source};
use crate::model::work::callbacks;
use crate::model::world;
use crate::{exit, faults};

/// Records a read of these bytes by the host.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sim_host_read(at: u64, bytes: usize) {
    host_access(at, bytes, AccessKind::Read, "host read");
}

/// Records a write of these bytes by the host.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sim_host_write(at: u64, bytes: usize) {
    host_access(at, bytes, AccessKind::Write, "host write");
}

/// Records that the host has seen a flag set by an operation: the host then knows everything that
/// the operation knew.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sim_host_acquire(at: u64) {
    let mut world = world::lock();
    if let Some(clock) = world.flags.get(&at).cloned() {
        world.host.clock.join(&clock);
    }
}

/// Number of races found so far, among operations that virtual time has reached.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sim_race_count() -> u64 {
    world::lock().report.races_count
}

/// Calls of one driver function so far.
///
/// # Safety
/// `function` is a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sim_call_count(function: *const c_char) -> u64 {
    // SAFETY: the caller gives a C string.
    let name = unsafe { CStr::from_ptr(function) }.to_string_lossy();
    world::lock().report.calls.get(name.as_ref()).copied().unwrap_or(0)
}

/// The calling thread's virtual clock.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sim_now_ns() -> u64 {
    let world = world::lock();
    let own = world.threads.get(&thread_number()).map(|thread| thread.ns);
    own.unwrap_or(world.engine.now)
}

/// Returns 1 if the calling thread's last call reported the end of work for which no wait had been
/// made. Such an answer depends on timing. Otherwise returns 0.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn sim_was_news() -> i32 {
    i32::from(world::lock().threads.get(&thread_number()).is_some_and(|thread| thread.news))
}

/// Adds failures as `SIM_FAIL` does; null removes all. Returns 0, or 1 if it cannot be read.
///
/// # Safety
/// `list` is null or a C string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sim_fail(list: *const c_char) -> i32 {
    let mut world = world::lock();
    if list.is_null() {
        world.faults.clear();
        return 0;
    }
    // SAFETY: not null, so the caller gives a C string.
    let list = unsafe { CStr::from_ptr(list) }.to_string_lossy();
    match faults::parse(&list) {
        Ok(more) => {
            world.faults.extend(more);
            0
        }
        Err(_) => 1,
    }
}

/// Writes the report so far, truncated to the buffer; returns its whole length.
///
/// # Safety
/// `room` bytes may be written at `at`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sim_report(at: *mut c_char, room: usize) -> usize {
    let text = exit::report_text(&world::lock());
    if room > 0 {
        let length = text.len().min(room - 1);
        // SAFETY: the caller gives room for `length` bytes and the zero after them.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), at.cast(), length);
            at.add(length).write(0);
        }
    }
    text.len()
}

/// Records an access of the host, or inside a host function, of the operation that runs it.
fn host_access(at: u64, bytes: usize, kind: AccessKind, name: &'static str) {
    let access = Access { start: at, bytes: bytes as u64, kind };
    let source = Source { name, op: 0, stream: HOST_STREAM };
    let running = callbacks::running_op();
    world::lock().touch(access, source, running.as_ref());
}
