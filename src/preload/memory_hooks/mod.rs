//! Memory hooks: callbacks of the program or its user for allocations and frees. Six have the order
//! and the arguments of CuPy's `MemoryHook`, and two are for other kinds of memory
//! (`include/cachealloc.h` is the contract).
//!
//! A callback may do what the program may do at this place: call CUDA, allocate, wait for a thread
//! that allocates. It therefore runs with no lock of the library held, outside the library's hooks
//! of driver functions. Its own calls are served like any others, but not reported, which would
//! recurse without end.
//!
//! While no hook is installed, no code here runs (`bypass::is_fast_path`).

mod guard;
mod list;
pub(crate) mod other_memory;
mod plugin;
mod table;

pub(crate) use list::{pop, push};
pub(crate) use plugin::expect as expect_plugin;
pub(crate) use table::Table;

use core::ptr::null;

use crate::driver::sys::CuResult;
use crate::driver_memory::table as driver_memory;
use crate::gate;
use crate::graphs::graph_memory;
use crate::memory_hooks::guard::Unwind;
use crate::memory_hooks::other_memory::{Kind, Observed, Other};
use crate::memory_hooks::table::Event;
use crate::pagemap;
use crate::pagemap::Place;
use crate::process::bypass;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::thread_state::without_cancellation;
use crate::{config, log};

/// A call of the program that memory hooks observe. The hooks are chosen when the call begins: a
/// hook pushed in a callback observes the next call, and every callback has its counterpart.
pub(crate) struct Call<'a> {
    thread: &'a Thread,
    /// Device of the memory, as reported to a hook.
    device: i32,
    hooks: list::Serials,
}

/// Reports an allocation to memory hooks. On success `allocate` writes the address to `pointer`.
/// Returns `None`, and does nothing, if no hook observes the call, this call is `allocate` itself,
/// or there is no current context and so no memory.
///
/// # Safety
///
/// If `allocate` succeeds, it must have written the address to `pointer`.
pub(crate) unsafe fn around_malloc(
    device: impl FnOnce() -> Option<i32>,
    pointer: *const u64,
    bytes: u64,
    allocate: impl FnOnce() -> CuResult,
) -> Option<CuResult> {
    thread::with(|thread| {
        let call = Call::begin(thread, device)?;
        let rounded = config::get().policy.block_bytes(bytes).unwrap_or(bytes);
        call.notify(Event::MallocPre, [bytes, rounded, 0, 0]);
        let code = call.during(allocate);
        let [mem_size, address, pmem_id] = match code {
            // SAFETY: the caller's promise.
            Ok(()) => call.describe(unsafe { pointer.read() }, bytes),
            _ => [rounded, 0, 0],
        };
        call.notify(Event::MallocPost, [bytes, mem_size, address, pmem_id]);
        Some(code)
    })
}

/// Reports a free to memory hooks. Returns `None`, and does nothing, in the cases of
/// `around_malloc`, and for frees of what no hook could have observed: a null pointer, a wrong
/// address, or driver memory allocated earlier.
pub(crate) fn around_free(address: u64, free: impl FnOnce() -> CuResult) -> Option<CuResult> {
    thread::with(|thread| {
        let (bytes, Observed { buffer_id, device, kind }) = match pagemap::place(address) {
            Place::Block(block) => {
                let (buffer_id, device) = (block.buffer_id(), block.context().device);
                (block.bytes, Observed { buffer_id, device, kind: None })
            }
            Place::Inside => return None,
            Place::Elsewhere => {
                driver_memory::observed(address).or_else(|| graph_memory::observed(address))?
            }
        };
        let call = Call::begin(thread, || Some(device))?;
        if let Some(kind) = kind {
            let code = call.during(free);
            if code.is_ok() {
                graph_memory::forget_observed(address);
                let other = Other { kind, device, bytes, number: address };
                call.notify(Event::OtherFreed, other.words(buffer_id));
            }
            return Some(code);
        }
        let words = [bytes, address, buffer_id, 0];
        call.notify(Event::FreePre, words);
        let code = call.during(free);
        call.notify(Event::FreePost, words);
        Some(code)
    })
}

/// Reports a call that adds a memory node to a graph. Returns `None`, and does nothing, where
/// `around_malloc` would.
///
/// # Safety
///
/// If `add` succeeds, it must have written the address to `pointer`.
pub(crate) unsafe fn around_node(
    device: impl FnOnce() -> Option<i32>,
    pointer: *const u64,
    bytes: u64,
    add: impl FnOnce() -> CuResult,
) -> Option<CuResult> {
    thread::with(|thread| {
        let call = Call::begin(thread, device)?;
        let code = call.during(add);
        if code.is_ok() {
            // SAFETY: the caller's promise.
            let number = unsafe { pointer.read() };
            let (device, kind, buffer_id) = (call.device, Kind::Graph, pagemap::fresh_buffer_id());
            graph_memory::observe(number, bytes, Observed { buffer_id, device, kind: Some(kind) });
            let other = Other { kind, device, bytes, number };
            call.notify(Event::OtherAllocated, other.words(buffer_id));
        }
        Some(code)
    })
}

/// Reports memory of another kind that a call of the program has allocated. `note` keeps what is
/// reported until its end.
pub(crate) fn other_allocated(other: Other, note: impl FnOnce(Observed)) {
    let Other { kind, device, .. } = other;
    thread::with(|thread| {
        let Some(call) = Call::begin(thread, || Some(device)) else { return };
        let buffer_id = pagemap::fresh_buffer_id();
        note(Observed { buffer_id, device, kind: Some(kind) });
        call.notify(Event::OtherAllocated, other.words(buffer_id));
    });
}

/// Reports the end of memory of another kind.
pub(crate) fn other_freed(other: &Other, observed: &Observed) {
    thread::with(|thread| {
        let Some(call) = Call::begin(thread, || Some(other.device)) else { return };
        call.notify(Event::OtherFreed, other.words(observed.buffer_id));
    });
}

/// Returns the call in which this thread asks the driver for memory, if memory hooks observe it.
/// The caller may notify them only while holding no lock.
pub(crate) fn observed_call(thread: &Thread) -> Option<&Call<'_>> {
    if bypass::is_fast_path() || thread.in_memory_hook.get() {
        return None;
    }
    // SAFETY: null, or the call that `Call::during` of this thread has on its stack now.
    unsafe { thread.observed_call.get().cast::<Call>().as_ref() }
}

/// Lets the driver serve a request by `ask`, which writes the address to `pointer`, and notifies
/// the memory hooks before and after it.
///
/// # Safety
///
/// If `ask` succeeds, it must have written the address to `pointer`.
pub(crate) unsafe fn around_driver(
    bytes: u64,
    pointer: *const u64,
    ask: impl FnOnce() -> CuResult,
) -> CuResult {
    thread::with(|thread| {
        let Some(call) = observed_call(thread) else { return ask() };
        call.before_driver(bytes);
        let code = ask();
        // SAFETY: the caller's promise.
        call.after_driver(bytes, if code.is_ok() { unsafe { pointer.read() } } else { 0 });
        code
    })
}

impl<'a> Call<'a> {
    /// Begins an observed call. Returns `None` if no hook is installed, the call is already
    /// observed, or it is made by a memory hook or inside the driver.
    fn begin(thread: &'a Thread, device: impl FnOnce() -> Option<i32>) -> Option<Call<'a>> {
        let observed = !thread.observed_call.get().is_null();
        if observed || thread.inside.get() || thread.in_memory_hook.get() {
            return None;
        }
        plugin::load(|load| outside(thread, load));
        // A thread's first access to its own hooks takes the loader's lock. A constructor may hold
        // that lock while it waits for this thread.
        if !gate::has_memory_hooks() {
            return None;
        }
        let hooks = list::serials();
        if hooks.is_empty() {
            return None;
        }
        Some(Call { thread, device: device()?, hooks })
    }

    pub(crate) fn before_driver(&self, bytes: u64) {
        self.notify(Event::AllocPre, [bytes, 0, 0, 0]);
    }

    /// Reports the driver's answer. `address` is 0 if the driver failed.
    pub(crate) fn after_driver(&self, bytes: u64, address: u64) {
        self.notify(Event::AllocPost, [bytes, address, 0, 0]);
    }

    /// Runs `body`, whose requests to the driver belong to this call.
    fn during(&self, body: impl FnOnce() -> CuResult) -> CuResult {
        self.thread.observed_call.set((&raw const *self).cast());
        let code = body();
        self.thread.observed_call.set(null());
        code
    }

    /// Returns the block's bytes, its address, and an id that no other allocation has.
    fn describe(&self, address: u64, asked_bytes: u64) -> [u64; 3] {
        match pagemap::place(address) {
            Place::Block(block) => [block.bytes, address, block.buffer_id()],
            _ => {
                let (buffer_id, device) = (pagemap::fresh_buffer_id(), self.device);
                let bytes =
                    driver_memory::observe(address, Observed { buffer_id, device, kind: None });
                [bytes.unwrap_or(asked_bytes), address, buffer_id]
            }
        }
    }

    /// Calls the hooks in the order they were pushed. A hook that throws is removed.
    fn notify(&self, event: Event, words: [u64; 4]) {
        outside(self.thread, || {
            for serial in self.hooks.iter() {
                let Some((callback, data)) = list::callback(serial, event) else { continue };
                let [a, b, c, d] = words.map(|word| word as usize);
                let left = guard::call(callback, &[data, self.device as usize, a, b, c, d]);
                let Some(left) = left else { continue };
                let name = list::remove(serial);
                let how = match left {
                    Unwind::ByException => "threw an exception",
                    Unwind::ByThreadExit => "called pthread_exit, which is not allowed there",
                };
                log::warn(format_args!(
                    "the memory hook {name:?} {how} in {}: removed the hook",
                    event.name()
                ));
            }
        });
    }
}

/// Runs foreign code as a call of the program that is not reported. The thread cannot be cancelled
/// meanwhile: that would unwind through the library's frames.
fn outside(thread: &Thread, body: impl FnOnce()) {
    let inside = thread.inside.replace(false);
    thread.in_memory_hook.set(true);
    without_cancellation(body);
    thread.in_memory_hook.set(false);
    thread.inside.set(inside);
}
