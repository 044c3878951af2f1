//! The call stack of a call of the program as one number: its native and Python frames, interned.
//! It is captured at the very start of a hook, before any lock.
//!
//! The layout of a stack's words: `cachealloc_history::persistent::Words`.

use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use cachealloc_history::StackId;
use cachealloc_history::persistent::{Words, cut, header, take_apart};
use cachealloc_options::{StackContext, StackKind};
use cachealloc_python::{Lookup, Status};
use cachealloc_stacks::LastWalk;

use crate::c_library::{dlsym, dynamic, objects};
use crate::heap;
use crate::log;
use crate::record;
use crate::record::{eval_loop, settings};

const NATIVE_FRAMES_MAX: usize = 160;
const PYTHON_FRAMES_MAX: usize = 96;
/// Enough to see which library allocated, if native frames are not wanted.
const CATEGORY_FRAMES: usize = 12;

/// Returns the stack of an allocation, or `NONE` if none is wanted.
#[inline]
pub(crate) fn of_allocation() -> StackId {
    if record::is_on() { capture(StackContext::State, ALLOCATION) } else { StackId::NONE }
}

/// Returns the stack of a free, if frees are recorded with separate stacks.
#[inline]
pub(crate) fn of_free() -> StackId {
    if record::is_on() { capture(StackContext::All, FREE) } else { StackId::NONE }
}

/// Returns the stack of a wait, whatever is recorded.
pub(crate) fn of_wait() -> StackId {
    capture_of(StackKind::All, ALLOCATION)
}

/// Returns the stack of a call that failed for lack of memory, whatever is recorded.
#[cold]
pub(crate) fn of_failure() -> StackId {
    static STARTED: AtomicBool = AtomicBool::new(false);
    let settings = settings::get();
    if record::is_on() && settings.context != StackContext::None {
        return capture_of(settings.stacks, ALLOCATION);
    }
    if !STARTED.swap(true, Ordering::Relaxed) {
        start(StackKind::All);
    }
    capture_of(StackKind::All, ALLOCATION)
}

#[inline(never)]
fn capture(wanted_from: StackContext, walk: usize) -> StackId {
    let settings = settings::get();
    if settings.context < wanted_from {
        return StackId::NONE;
    }
    capture_of(settings.stacks, walk)
}

fn capture_of(kind: StackKind, walk: usize) -> StackId {
    SCRATCH.with_borrow_mut(|words| capture_into(words, kind, walk))
}

/// A buffer for one stack. It is not on the thread's stack, which may be small, and where it would
/// have to be cleared each time.
type Scratch = [u64; 1 + NATIVE_FRAMES_MAX + PYTHON_FRAMES_MAX];

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new([0; size_of::<Scratch>() / 8]) };
    /// The last walks of the thread, which its next captures check instead of walking again.
    static LAST_WALKS: [Cell<Option<Box<LastWalk>>>; 2] = const { [const { Cell::new(None) }; 2] };
    /// Whether each of `LAST_WALKS` was made. Unlike them, this has no destructor.
    static HAS_LAST_WALK: [Cell<bool>; 2] = const { [const { Cell::new(false) }; 2] };
}

/// Places in `LAST_WALKS`. A loop allocates and frees in turn, each in one place of its code.
const ALLOCATION: usize = 0;
const FREE: usize = 1;

/// Takes a last walk of the thread, which the first capture makes. Returns `None` in a nested
/// capture, in a thread that ends, and if the host is short of memory: the walk would take a part
/// of the reserve for each thread, and the C library ends a process that cannot register a
/// destructor.
#[inline]
fn take_last_walk(place: usize) -> Option<Box<LastWalk>> {
    if !HAS_LAST_WALK.with(|made| made[place].get()) {
        make_last_walk(place)?;
    }
    LAST_WALKS.try_with(|walks| walks[place].take()).ok().flatten()
}

#[cold]
fn make_last_walk(place: usize) -> Option<()> {
    let walk = (!heap::is_short()).then(LastWalk::new).filter(|_| !heap::is_short())?;
    HAS_LAST_WALK.with(|made| made[place].set(true));
    LAST_WALKS.try_with(|walks| walks[place].set(Some(walk))).ok()
}

/// The note about a walk whose stack, without Python frames, has this id.
fn note(stack: StackId, hidden: bool) -> u64 {
    u64::from(stack.0) << 1 | u64::from(hidden)
}

#[inline]
fn capture_into(words: &mut Scratch, kind: StackKind, walk: usize) -> StackId {
    let native_max = if kind == StackKind::Python { CATEGORY_FRAMES } else { NATIVE_FRAMES_MAX };
    let mut last = take_last_walk(walk);
    let native = &mut words[1..=native_max];
    let native = cachealloc_stacks::capture_again(native, own_addresses(), last.as_deref_mut());
    let mut used = 1 + native.count;
    let hidden = kind == StackKind::Python;
    let mut is_cut = (native.truncated && !hidden, false);
    if kind != StackKind::Native {
        let python = cachealloc_python::capture(&mut words[used..][..PYTHON_FRAMES_MAX]);
        used += python.count;
        is_cut.1 = python.truncated;
    }
    let is_native = used == 1 + native.count && !is_cut.1;
    let noted = last.as_ref().map_or(0, |last| last.note());
    let (stack, is_new) = if is_native && noted > 1 && noted & 1 == u64::from(hidden) {
        (StackId((noted >> 1) as u32), false)
    } else {
        words[0] = header(native.epoch, native.count, hidden) | cut(is_cut.0, is_cut.1);
        record::stacks().intern(&words[..used])
    };
    if let Some(mut last) = last {
        last.set_note(if is_native { note(stack, hidden) } else { 0 });
        let _ = LAST_WALKS.try_with(|walks| walks[walk].set(Some(last)));
    }
    if is_new && kind == StackKind::All && used > 1 + native.count {
        eval_loop::learn::<NATIVE_FRAMES_MAX, PYTHON_FRAMES_MAX>(own_addresses());
    }
    if is_new && kind != StackKind::Native && has_python_come() {
        return capture_into(words, kind, walk);
    }
    stack
}

/// Returns whether an interpreter has appeared since the last call. Called for new stacks: those of
/// a program that starts an interpreter after CUDA are new.
#[cold]
#[inline(never)]
fn has_python_come() -> bool {
    static LAST: AtomicU64 = AtomicU64::new(u64::MAX);
    if !matches!(cachealloc_python::status(), Status::NoPython) {
        return false;
    }
    let has_changed = || {
        let changes = objects::changes();
        LAST.swap(changes, Ordering::Relaxed) != changes
    };
    if cachealloc_stacks::unless_forking(has_changed) != Some(true) {
        return false;
    }
    // The lookup avoids the loader's other lock: a constructor that holds it may wait for this
    // thread.
    let find = |name: &CStr| {
        cachealloc_stacks::unless_forking(|| dynamic::find(name)).unwrap_or(core::ptr::null())
    };
    look_for_python(find);
    matches!(cachealloc_python::status(), Status::On { .. })
}

/// Returns the words of a stack that was captured here.
pub(crate) fn words(stack: StackId) -> Option<Words> {
    take_apart(&record::stacks().words(stack))
}

/// Prepares what captures need: the library's own address range, and the Python interpreter, if
/// any.
pub(crate) fn start(stacks: StackKind) {
    own_addresses();
    if stacks == StackKind::Native {
        return;
    }
    look_for_python(global);
}

fn look_for_python(lookup: Lookup) {
    if let Status::Unsupported { version, why } = cachealloc_python::start(lookup) {
        log::warn(format_args!("Python {version}: no Python stacks ({why})"));
    }
}

/// Looks up a symbol of the process as any library of the program would.
fn global(name: &CStr) -> *const c_void {
    dlsym::real(libc::RTLD_DEFAULT, name.as_ptr())
}

pub(super) fn own_addresses() -> Range<u64> {
    static OWN: OnceLock<Range<u64>> = OnceLock::new();
    OWN.get_or_init(|| cachealloc_stacks::object_range(capture as *const () as u64)).clone()
}
