//! Every module (main program, library, vDSO) that the process ever had, and when.
//!
//! The table is append-only: a list in memory that is never given back, read without a lock. It is
//! written during visits to the loader's list. What orders things:
//!
//! - Lock order: the loader's list lock, then `WRITER`. `WRITER` is only ever tried, never waited
//!   for: a signal handler may have interrupted the writer on this very thread.
//! - A visit shows `(added, removed)`. If it differs from `SEEN`, the table is brought up to date
//!   before anything else is looked up. If something was removed, a new epoch begins.
//! - An epoch's number is stored before `SEEN`: a reader that finds `SEEN` current finds the epoch current.

use core::cell::UnsafeCell;
use core::ops::{ControlFlow, Range};
use core::ptr::null_mut;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arena::Arena;
use crate::fork::Visit;
use crate::loader::{ListState, Object, each_object};

/// One module while it was loaded at one place.
pub(crate) struct Module {
    base: u64,
    range: Range<u64>,
    headers: *const libc::Elf64_Phdr,
    headers_count: usize,
    /// Empty: the main program.
    name: &'static [u8],
    build_id: &'static [u8],
    first_epoch: u32,
    /// Or `LOADED`.
    last_epoch: AtomicU32,
    /// The last visit that came across it.
    visit: AtomicU32,
    older: *const Module,
}

// SAFETY: `headers` is read only under the loader's lock while the module is loaded; `older` points
// to a module, never freed.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Module {}

/// Which module contained an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    pub path: String,
    pub build_id: Vec<u8>,
    /// Of the address from the load base: the address in the module's file, as `addr2line` wants it.
    pub offset: u64,
    /// It is still there.
    pub loaded: bool,
}

const LOADED: u32 = u32::MAX;
/// Beyond this many, further modules stay unknown: a program may load and unload for ever.
const MODULES_MAX: u32 = 1 << 16;
/// A visit may find the list changed once more, which the loader cannot keep up, or another thread that writes.
/// That one may have lost its processor: enough to outlast a few turns of others, as each attempt sleeps.
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

/// The number of the present epoch, as far as noticed.
#[inline(always)]
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// Ends the epoch if a library was unloaded in it. Call after `dlclose`.
pub fn note_unload() {
    observe();
}

/// Brings the table up to date.
pub(crate) fn observe() {
    Visit::begin_patiently().and_then(|visit| while_current(&visit, |_| ()));
}

/// As [`observe`], unless the process is forking; the present epoch.
pub(crate) fn observe_now() -> u32 {
    Visit::begin().and_then(|visit| while_current(&visit, |epoch| epoch)).unwrap_or_else(epoch)
}

/// Runs `body` with the present epoch, under the loader's list lock and with an up-to-date table.
/// `None`: the table is being written underneath us, or cannot grow.
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
            // We interrupted the writer.
            None if WRITER.load(Ordering::Relaxed) == this_thread() => return None,
            // Another thread is about to publish. Asleep, not yielding: under a real-time policy a thread gives way only to its equals.
            None => std::thread::sleep(core::time::Duration::from_micros(1)),
        }
    }
    None
}

/// The module that contains this address now, as far as noticed.
pub(crate) fn loaded_at(address: u64) -> Option<&'static Module> {
    modules().find(|it| it.loaded() && it.range.contains(&address))
}

/// The address range of the object (main program or library) that contains this address; empty if
/// there is none.
pub fn object_range(address: u64) -> Range<u64> {
    observe();
    loaded_at(address).map_or(0..0, |module| module.range.clone())
}

/// Which module contained the address in that epoch, even if it was unloaded since.
pub fn module_at(address: u64, epoch: u32) -> Option<ModuleInfo> {
    observe();
    find(address, epoch).map(|module| module.info(address))
}

/// The names of the modules that contained these addresses in that epoch, as the loader has them: that of the main
/// program is empty.
pub fn module_names(addresses: &[u64], epoch: u32) -> impl Iterator<Item = Option<&'static [u8]>> {
    observe();
    let mut last: Option<&Module> = None;
    addresses.iter().map(move |address| {
        // Frames of one module often follow each other.
        let same = last.filter(|it| it.range.contains(address) && it.lived_in(epoch));
        last = same.or_else(|| find(*address, epoch));
        last.map(|module| module.name)
    })
}

/// A module, as long as it was at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleLife {
    pub base: u64,
    pub range: Range<u64>,
    /// Both included; the last one is the largest number while the module is there.
    pub epochs: (u32, u32),
    pub path: String,
    pub build_id: Vec<u8>,
}

/// Every module that was noticed so far, the newest first.
pub fn module_lives() -> impl Iterator<Item = ModuleLife> {
    modules().map(|module| ModuleLife {
        base: module.base,
        range: module.range.clone(),
        epochs: (module.first_epoch, module.last_epoch.load(Ordering::Relaxed)),
        path: module.path(),
        build_id: module.build_id.to_vec(),
    })
}

/// Changes when a module comes or goes, as far as noticed.
pub fn modules_version() -> u64 {
    SEEN.load(Ordering::Acquire)
}

/// As [`module_at`], without looking for changes first.
pub(crate) fn find(address: u64, epoch: u32) -> Option<&'static Module> {
    modules().find(|it| it.range.contains(&address) && it.lived_in(epoch))
}

fn modules() -> impl Iterator<Item = &'static Module> {
    // SAFETY: null or a module, never freed; each was complete before it was linked in.
    let newest = unsafe { NEWEST.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    core::iter::successors(newest, |module| unsafe { module.older.as_ref() })
}

impl Module {
    /// The program headers. Only for `while_current`'s body, of a module that is loaded.
    ///
    /// # Safety
    ///
    /// - The module is loaded and stays so as long as the result is used.
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

    /// As the loader names it; the main program has no name there.
    pub(crate) fn path(&self) -> String {
        if !self.name.is_empty() {
            return String::from_utf8_lossy(self.name).into_owned();
        }
        let path = cachealloc_foreign::own_program();
        String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
    }

    /// Where its file can be opened. The kernel leads to that of the main program, whatever has its name now.
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

/// One visit that brings the table up to date. Holds `WRITER`.
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

    /// Marks the object as present, or adds it. `false`: it cannot be kept.
    fn note(&mut self, object: &Object) -> bool {
        // A module that went and came back between two visits may go on with its old entry: what
        // was seen in between ended an epoch, and this began before.
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

    /// Notes what is gone and makes the new epoch visible.
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
        // SAFETY: we hold `WRITER`, and borrow through ourselves.
        unsafe { &mut *WRITING.0.get() }
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        WRITER.store(UNWRITTEN, Ordering::Release);
    }
}

/// What leads to the main program's file.
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
