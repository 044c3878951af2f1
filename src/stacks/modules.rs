//! Every module (main program, library, vDSO) that the process ever had, and its epochs.
//!
//! The table is append-only: a list in memory that is never freed, read without a lock. It is
//! written during visits to the loader's list. The ordering rules are:
//!
//! - Lock order: the loader's list lock, then `WRITER`. `WRITER` is only ever tried, never awaited:
//!   a signal
//!   handler may have interrupted the writer on this very thread.
//! - A visit reads `(added, removed)`. If it differs from `SEEN`, the table is updated before any
//!   lookup. If
//!   an object was removed, a new epoch begins.
//! - An epoch's number is stored before `SEEN`: a reader that finds `SEEN` current finds the epoch
//!   current.

use core::cell::UnsafeCell;
use core::ops::{ControlFlow, Range};
use core::ptr::null_mut;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arena::Arena;
use crate::fork::Visit;
use crate::loader::{ListState, Object, each_object};

/// One module while it was loaded at one address.
pub(crate) struct Module {
    base: u64,
    range: Range<u64>,
    headers: *const libc::Elf64_Phdr,
    headers_count: usize,
    /// Name in the loader's list; empty for the main program.
    name: &'static [u8],
    build_id: &'static [u8],
    first_epoch: u32,
    /// Last epoch, or `LOADED`.
    last_epoch: AtomicU32,
    /// Number of the last visit that found it.
    visit: AtomicU32,
    older: *const Module,
}

// SAFETY: `headers` is read only under the loader's lock while the module is loaded; `older` points
// to a module, never freed.
unsafe impl Sync for Module {}
// SAFETY: see `Sync` above.
unsafe impl Send for Module {}

/// The module that contained an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    pub path: String,
    pub build_id: Vec<u8>,
    /// Offset of the address from the load base: the address in the module's file, as `addr2line`
    /// takes it.
    pub offset: u64,
    /// Whether the module is still loaded.
    pub loaded: bool,
}

const LOADED: u32 = u32::MAX;
/// Maximum number of modules; further ones stay unknown, because a program may load and unload
/// forever.
const MODULES_MAX: u32 = 1 << 16;
/// Attempts of a visit. It repeats if the list has changed again, which the loader cannot do
/// endlessly, or if another thread is writing. That thread may have lost its processor: each
/// attempt sleeps, so they outlast a few turns of other threads.
const ATTEMPTS_MAX: u32 = 400;

static NEWEST: AtomicPtr<Module> = AtomicPtr::new(null_mut());
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// `ListState` of the last completed visit, packed.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Number of the thread that writes the table, or `UNWRITTEN`.
static WRITER: AtomicI32 = AtomicI32::new(UNWRITTEN);
const UNWRITTEN: i32 = 0;
static WRITING: Writing =
    Writing(UnsafeCell::new(WriterState { arena: Arena::new(), visits: 0, modules: 0 }));

struct Writing(UnsafeCell<WriterState>);

struct WriterState {
    arena: Arena,
    visits: u32,
    modules: u32,
}

// SAFETY: only the holder of `WRITER` touches the content.
unsafe impl Sync for Writing {}

/// Number of the current epoch, as far as noticed.
#[inline(always)]
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// Ends the epoch if a library was unloaded in it. The caller must call it after `dlclose`.
pub fn note_unload() {
    observe();
}

/// Brings the table up to date.
pub(crate) fn observe() {
    Visit::begin_patiently().and_then(|visit| while_current(&visit, |_| ()));
}

/// Like [`observe`], unless the process is forking. Returns the current epoch.
pub(crate) fn observe_now() -> u32 {
    Visit::begin().and_then(|visit| while_current(&visit, |epoch| epoch)).unwrap_or_else(epoch)
}

/// Runs `body` with the current epoch, under the loader's list lock and with an up-to-date table.
/// Returns `None` if another writer is active or the table cannot grow.
pub(crate) fn while_current<R>(_: &Visit, body: impl FnOnce(u32) -> R) -> Option<R> {
    let mut body = Some(body);
    for _ in 0..ATTEMPTS_MAX {
        let mut result = None;
        let mut update = None;
        let mut refused = false;
        each_object(|object| {
            if update.is_none() && pack(object.state) == SEEN.load(Ordering::Acquire) {
                result = body.take().map(|body| body(EPOCH.load(Ordering::Acquire)));
                return ControlFlow::Break(());
            }
            if update.is_none() {
                update = Update::begin(object.state);
            }
            refused = !update.as_mut().is_some_and(|update| update.note(object));
            if refused { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if result.is_some() {
            return result;
        }
        match update {
            Some(update) if !refused => update.publish(),
            Some(_) => return None,
            // This thread's writer was interrupted by the current signal handler.
            None if WRITER.load(Ordering::Relaxed) == this_thread() => return None,
            // Another thread is about to publish. Sleep instead of yielding: under a real-time
            // policy a thread yields only to its equals.
            None => std::thread::sleep(core::time::Duration::from_micros(1)),
        }
    }
    None
}

/// Returns the module that contains this address now, as far as noticed.
pub(crate) fn loaded_at(address: u64) -> Option<&'static Module> {
    modules().find(|it| it.loaded() && it.range.contains(&address))
}

/// Returns the address range of the object (main program or library) that contains this address.
/// Empty if no object does.
pub fn object_range(address: u64) -> Range<u64> {
    observe();
    loaded_at(address).map_or(0..0, |module| module.range.clone())
}

/// Returns the module that contained the address in that epoch, even if it was unloaded since.
pub fn module_at(address: u64, epoch: u32) -> Option<ModuleInfo> {
    observe();
    find(address, epoch).map(|module| module.info(address))
}

/// Returns the names of the modules that contained these addresses in that epoch, as in the
/// loader's list: that of the main program is empty.
pub fn module_names(addresses: &[u64], epoch: u32) -> impl Iterator<Item = Option<&'static [u8]>> {
    observe();
    let mut last: Option<&Module> = None;
    addresses.iter().map(move |address| {
        // Frames of one module are often adjacent.
        let same = last.filter(|it| it.range.contains(address) && it.lived_in(epoch));
        last = same.or_else(|| find(*address, epoch));
        last.map(|module| module.name)
    })
}

/// A module, for as long as it was at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleLife {
    pub base: u64,
    pub range: Range<u64>,
    /// First and last epoch, both included. The last one is `u32::MAX` while the module is loaded.
    pub epochs: (u32, u32),
    pub path: String,
    pub build_id: Vec<u8>,
}

/// Returns every module noticed so far, the newest first.
pub fn module_lives() -> impl Iterator<Item = ModuleLife> {
    modules().map(|module| ModuleLife {
        base: module.base,
        range: module.range.clone(),
        epochs: (module.first_epoch, module.last_epoch.load(Ordering::Relaxed)),
        path: module.path(),
        build_id: module.build_id.to_vec(),
    })
}

/// Returns a number that changes when a module is added or removed, as far as noticed.
pub fn modules_version() -> u64 {
    SEEN.load(Ordering::Acquire)
}

/// Like [`module_at`], without first checking for changes.
pub(crate) fn find(address: u64, epoch: u32) -> Option<&'static Module> {
    modules().find(|it| it.range.contains(&address) && it.lived_in(epoch))
}

fn modules() -> impl Iterator<Item = &'static Module> {
    // SAFETY: null or a module, never freed; each was complete before it was linked in.
    let newest = unsafe { NEWEST.load(Ordering::Acquire).as_ref() };
    // SAFETY: each is null or a module that is never freed.
    core::iter::successors(newest, |module| unsafe { module.older.as_ref() })
}

impl Module {
    /// Returns the program headers. Only for the body of `while_current`, and for a loaded module.
    ///
    /// # Safety
    ///
    /// - The module is loaded and stays so for as long as the result is used.
    pub(crate) unsafe fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: the loader's own description of a loaded object.
        unsafe { core::slice::from_raw_parts(self.headers, self.headers_count) }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn loaded(&self) -> bool {
        self.last_epoch.load(Ordering::Relaxed) == LOADED
    }

    pub(crate) fn build_id(&self) -> &'static [u8] {
        self.build_id
    }

    /// Returns the loader's name of the module, or the program's path for the main program, which
    /// has none.
    pub(crate) fn path(&self) -> String {
        if !self.name.is_empty() {
            return String::from_utf8_lossy(self.name).into_owned();
        }
        let path = cachealloc_foreign::own_program();
        String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
    }

    /// Returns a path at which the module's file can be opened. For the main program, the kernel's
    /// link leads to its file even if another file has that name now.
    pub(crate) fn file(&self) -> PathBuf {
        if self.name.is_empty() { program() } else { self.path().into() }
    }

    pub(crate) fn info(&self, address: u64) -> ModuleInfo {
        ModuleInfo {
            path: self.path(),
            build_id: self.build_id.to_vec(),
            offset: address.wrapping_sub(self.base),
            loaded: self.loaded(),
        }
    }

    fn lived_in(&self, epoch: u32) -> bool {
        (self.first_epoch..=self.last_epoch.load(Ordering::Relaxed)).contains(&epoch)
    }

    fn is(&self, object: &Object) -> bool {
        self.base == object.base
            && core::ptr::eq(self.headers, object.headers.as_ptr())
            && self.range == object.range()
            && self.name == object.name
            && self.build_id == object.build_id()
    }
}

/// One visit that updates the table. It holds `WRITER`.
struct Update {
    state: ListState,
    epoch: u32,
    visit: u32,
}

impl Update {
    fn begin(state: ListState) -> Option<Update> {
        WRITER
            .compare_exchange(UNWRITTEN, this_thread(), Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let seen = SEEN.load(Ordering::Relaxed);
        let removed = unpack(seen).removed != state.removed && seen != 0;
        let mut update =
            Update { state, epoch: EPOCH.load(Ordering::Relaxed) + u32::from(removed), visit: 0 };
        let writing = update.writing();
        writing.visits = writing.visits.wrapping_add(1);
        update.visit = writing.visits;
        Some(update)
    }

    /// Marks the object as present, or adds it. Returns `false` if it cannot be stored.
    fn note(&mut self, object: &Object) -> bool {
        // A module that was unloaded and loaded again between two visits may keep its old entry:
        // whatever was seen in between ended an epoch, and this entry began before it.
        let known = modules().find(|module| {
            let last = module.last_epoch.load(Ordering::Relaxed);
            (last == LOADED || last + 1 == self.epoch) && module.is(object)
        });
        if let Some(module) = known {
            module.last_epoch.store(LOADED, Ordering::Relaxed);
            module.visit.store(self.visit, Ordering::Relaxed);
            return true;
        }
        self.add(object).is_some()
    }

    fn add(&mut self, object: &Object) -> Option<()> {
        let (epoch, visit) = (self.epoch, self.visit);
        let writing = self.writing();
        if writing.modules == MODULES_MAX {
            return Some(());
        }
        let module = Module {
            base: object.base,
            range: object.range(),
            headers: object.headers.as_ptr(),
            headers_count: object.headers.len(),
            name: writing.arena.bytes(object.name)?,
            build_id: writing.arena.bytes(object.build_id())?,
            first_epoch: epoch,
            last_epoch: AtomicU32::new(LOADED),
            visit: AtomicU32::new(visit),
            older: NEWEST.load(Ordering::Relaxed),
        };
        let module = writing.arena.value(module)?;
        writing.modules += 1;
        NEWEST.store((module as *const Module).cast_mut(), Ordering::Release);
        Some(())
    }

    /// Marks removed modules and publishes the new epoch.
    fn publish(self) {
        let before = EPOCH.load(Ordering::Relaxed);
        let gone = |module: &&Module| {
            module.loaded() && module.visit.load(Ordering::Relaxed) != self.visit
        };
        for module in modules().filter(gone) {
            module.last_epoch.store(before, Ordering::Relaxed);
        }
        if self.epoch != before {
            crate::rule_cache::note_epoch(self.epoch);
            EPOCH.store(self.epoch, Ordering::Release);
        }
        SEEN.store(pack(self.state), Ordering::Release);
    }

    fn writing(&mut self) -> &mut WriterState {
        // SAFETY: `self` holds `WRITER`, and the result borrows from it.
        unsafe { &mut *WRITING.0.get() }
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        WRITER.store(UNWRITTEN, Ordering::Release);
    }
}

/// Returns the path of the main program's file.
fn program() -> PathBuf {
    Path::new(cachealloc_foreign::own_proc()).join("exe")
}

fn this_thread() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

fn pack(state: ListState) -> u64 {
    u64::from(state.added) << 32 | u64::from(state.removed)
}

fn unpack(packed: u64) -> ListState {
    ListState { added: (packed >> 32) as u32, removed: packed as u32 }
}
