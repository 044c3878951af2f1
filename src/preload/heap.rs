//! The library's heap: the program's `malloc`, but for the writer of snapshots, and where there is no
//! memory.
//!
//! Note [Heap]. Rust ends the process where an allocation fails, and there is no other way on stable
//! Rust; natively the program would live on, for it looks at what its `malloc` answers. So an
//! allocation of ours that the system refuses is served from a reserve, and the recording stops with a
//! line: what is left then needs little. The lists that recording grows are grown by `try_reserve`.
//!
//! The writer allocates without bounds: names of a large library take hundreds of megabytes. Where it gets
//! no more, it *gives up*: it says so and sleeps for ever, with no lock of the program's in its hands; what
//! it allocates under such a lock it has taken before (`Section`).
//!
//! Its memory comes from the kernel and not from `malloc`: threads of the program may have been stopped
//! inside `malloc` (`snapshots::stop`), or wait in a signal handler there, and the lock would be theirs.
//! A block may be freed by any thread; the writer finds such blocks in a list. Blocks of the program's heap that
//! the writer frees wait until it has nothing else to do.
//!
//! Each block has a head in front that says whose it is. Only the writer touches `OWN`.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use std::alloc::System;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

pub struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

#[repr(C, align(16))]
struct Head {
    kind: u32,
    class: u32,
    /// Of a block in a section: the section.
    section: *mut SectionHead,
}

const HEAD_BYTES: usize = size_of::<Head>();
const OF_SYSTEM: u32 = 1;
const OF_RESERVE: u32 = 2;
const SMALL: u32 = 3;
const LARGE: u32 = 4;
const IN_SECTION: u32 = 5;

/// With the head. Larger blocks are mappings.
const SMALL_BYTES_MAX: usize = 64 << 10;
const FINE_BYTES_MAX: usize = 1 << 10;
const FINE_STEP: usize = 16;
const FINE_COUNT: usize = FINE_BYTES_MAX / FINE_STEP;
/// Above the fine ones, four of each power of two.
const CLASSES_COUNT: usize = FINE_COUNT + 4 * 6;
const CHUNK_BYTES: usize = 1 << 20;
const RESERVE_BYTES: usize = 4 << 20;
/// The writer takes so little from the reserve, too: it may hold a lock.
const LITTLE_BYTES_MAX: usize = 4096;

thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is the writer from here on.
pub fn become_writer() {
    IS_WRITER.set(true);
}

/// Runs `body`, which allocates for the program's threads: what it makes they will grow and free, and where
/// there is no memory it ends as theirs does.
pub fn as_others<T>(body: impl FnOnce() -> T) -> T {
    let was_writer = IS_WRITER.replace(false);
    let result = body();
    IS_WRITER.set(was_writer);
    result
}

/// What the writer does where it gets no memory; it does not return.
static GIVE_UP: AtomicPtr<()> = AtomicPtr::new(null_mut());
/// What happens when a thread of the program got no memory for us: takes no lock and allocates nothing.
static NOTE_SHORT: AtomicPtr<()> = AtomicPtr::new(null_mut());

pub fn when_short(give_up: fn() -> !, note_short: fn()) {
    GIVE_UP.store(give_up as *mut (), Ordering::Release);
    NOTE_SHORT.store(note_short as *mut (), Ordering::Release);
}

// SAFETY: each block is valid for its layout until it is freed, by whatever thread: those of the system as
// `System` promises; those of the reserve are never used again; the others are the writer's, see below.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_WRITER.get() {
            return own_alloc(layout);
        }
        let Some(whole) = with_head(layout) else { return null_mut() };
        // SAFETY: never of size 0.
        let base = unsafe { System.alloc(whole) };
        if base.is_null() { reserve_alloc(layout) } else { place(base, layout, OF_SYSTEM, 0) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !IS_WRITER.get()
            && let Some(whole) = with_head(layout)
        {
            // SAFETY: never of size 0.
            let base = unsafe { System.alloc_zeroed(whole) };
            if !base.is_null() {
                return place(base, layout, OF_SYSTEM, 0);
            }
        }
        // SAFETY: as the caller's.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: a new block of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: a block of ours, with its head.
        let head = unsafe { &*block.sub(HEAD_BYTES).cast::<Head>() };
        match head.kind {
            OF_SYSTEM if IS_WRITER.get() && offset(layout) == HEAD_BYTES => free_later(block),
            OF_SYSTEM => {
                let base = block.wrapping_sub(offset(layout));
                if let Some(whole) = with_head(layout) {
                    // SAFETY: as it was allocated.
                    unsafe { System.dealloc(base, whole) }
                }
            }
            SMALL => free_small(block, head.class as usize),
            LARGE => {
                let bytes = mapped_bytes(layout);
                // SAFETY: a mapping of its own, of this size.
                unsafe { libc::munmap(block.sub(offset(layout)).cast(), bytes) };
            }
            // SAFETY: the section lives as long as a block in it.
            IN_SECTION => unsafe { SectionHead::let_go(head.section) },
            _ => {}
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else { return null_mut() };
        // SAFETY: a block of ours, with its head.
        let Head { kind, class, .. } = unsafe { block.sub(HEAD_BYTES).cast::<Head>().read() };
        if kind == SMALL
            && bytes <= SMALL_BYTES_MAX - HEAD_BYTES
            && class_of(bytes + HEAD_BYTES).0 == class as usize
        {
            return block;
        }
        if kind == LARGE
            && bytes > SMALL_BYTES_MAX
            && let Some(moved) = resized(block, layout, wanted)
        {
            return moved;
        }
        if kind == OF_SYSTEM
            && !IS_WRITER.get()
            && let (Some(whole), Some(new)) = (with_head(layout), with_head(wanted))
        {
            let base = block.wrapping_sub(offset(layout));
            // SAFETY: as it was allocated; the head moves with it.
            let moved = unsafe { System.realloc(base, whole, new.size()) };
            if !moved.is_null() {
                return moved.wrapping_add(offset(layout));
            }
        }
        // SAFETY: a new block, of at least what is copied, and the old one as it was allocated.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// From the begin of what is allocated to the block.
fn offset(layout: Layout) -> usize {
    layout.align().max(HEAD_BYTES)
}

fn with_head(layout: Layout) -> Option<Layout> {
    let bytes = layout.size().checked_add(offset(layout))?;
    Layout::from_size_align(bytes, offset(layout)).ok()
}

fn place(base: *mut u8, layout: Layout, kind: u32, class: usize) -> *mut u8 {
    place_in(base, layout, Head { kind, class: class as u32, section: null_mut() })
}

fn place_in(base: *mut u8, layout: Layout, head: Head) -> *mut u8 {
    // SAFETY: room for the head lies before the block.
    unsafe {
        let block = base.add(offset(layout));
        block.sub(HEAD_BYTES).cast::<Head>().write(head);
        block
    }
}

// ---- the reserve

struct Reserve(UnsafeCell<[u8; RESERVE_BYTES]>);
// SAFETY: each byte is given out once.
unsafe impl Sync for Reserve {}
/// Addresses only, until it is needed.
static RESERVE: Reserve = Reserve(UnsafeCell::new([0; RESERVE_BYTES]));
static RESERVE_USED: AtomicUsize = AtomicUsize::new(0);

fn reserve_alloc(layout: Layout) -> *mut u8 {
    let note = NOTE_SHORT.load(Ordering::Acquire);
    if !note.is_null() {
        // SAFETY: `when_short` stored a function of this signature.
        unsafe { core::mem::transmute::<*mut (), fn()>(note)() };
    }
    reserve_take(layout).unwrap_or(null_mut())
}

fn reserve_take(layout: Layout) -> Option<*mut u8> {
    let bytes = with_head(layout)?.size().checked_add(offset(layout))?;
    let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= RESERVE_BYTES);
    let used = RESERVE_USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
    let base = RESERVE.0.get().cast::<u8>().wrapping_add(used);
    let base = base.wrapping_add(base.align_offset(offset(layout)));
    Some(place(base, layout, OF_RESERVE, 0))
}

// ---- the writer's

struct Own {
    free: [*mut Free; CLASSES_COUNT],
    chunk: *mut u8,
    chunk_left: usize,
    section: *mut SectionHead,
}

/// A free block, in its own memory.
struct Free {
    next: *mut Free,
}

struct OwnCell(UnsafeCell<Own>);
// SAFETY: only the writer uses it.
unsafe impl Sync for OwnCell {}
static OWN: OwnCell = OwnCell(UnsafeCell::new(Own {
    free: [null_mut(); CLASSES_COUNT],
    chunk: null_mut(),
    chunk_left: 0,
    section: null_mut(),
}));
/// Blocks of the writer's that other threads have freed.
static GIVEN_BACK: AtomicPtr<Free> = AtomicPtr::new(null_mut());

/// The class of a block with its head, and how many bytes those of the class have.
fn class_of(bytes: usize) -> (usize, usize) {
    if bytes <= FINE_BYTES_MAX {
        let class = bytes.div_ceil(FINE_STEP);
        return (class - 1, class * FINE_STEP);
    }
    let power = (bytes - 1).ilog2() as usize;
    let step = 1 << (power - 2);
    let quarter = (bytes - (1 << power)).div_ceil(step);
    let class = FINE_COUNT + (power - FINE_BYTES_MAX.ilog2() as usize) * 4 + quarter - 1;
    (class, (1 << power) + quarter * step)
}

fn own_alloc(layout: Layout) -> *mut u8 {
    // SAFETY: this is the writer.
    let own = unsafe { &mut *OWN.0.get() };
    let block = if !own.section.is_null() {
        own.in_section(layout)
    } else if layout.align() > HEAD_BYTES || layout.size() > SMALL_BYTES_MAX - HEAD_BYTES {
        map(mapped_bytes(layout)).map(|base| place(base, layout, LARGE, 0))
    } else {
        own.small(layout)
    };
    let give_up = GIVE_UP.load(Ordering::Acquire);
    let is_little = layout.size() <= LITTLE_BYTES_MAX;
    match block.or_else(|| if is_little { reserve_take(layout) } else { None }) {
        Some(block) => block,
        None if give_up.is_null() => null_mut(),
        // SAFETY: `when_short` stored a function of this signature.
        None => unsafe { core::mem::transmute::<*mut (), fn() -> !>(give_up)() },
    }
}

impl Own {
    fn small(&mut self, layout: Layout) -> Option<*mut u8> {
        let (class, bytes) = class_of(layout.size() + HEAD_BYTES);
        if self.free[class].is_null() {
            self.take_given_back();
        }
        let free = self.free[class];
        if !free.is_null() {
            // SAFETY: a free block of this class.
            self.free[class] = unsafe { (*free).next };
            return Some(place(free.cast::<u8>().wrapping_sub(HEAD_BYTES), layout, SMALL, class));
        }
        if self.chunk_left < bytes {
            self.chunk = map(CHUNK_BYTES)?;
            self.chunk_left = CHUNK_BYTES;
        }
        let base = self.chunk;
        self.chunk = base.wrapping_add(bytes);
        self.chunk_left -= bytes;
        Some(place(base, layout, SMALL, class))
    }

    fn take_given_back(&mut self) {
        let mut next = GIVEN_BACK.swap(null_mut(), Ordering::Acquire);
        while !next.is_null() {
            let block = next;
            // SAFETY: a free block with its head.
            unsafe {
                next = (*block).next;
                let class = (*block.cast::<u8>().sub(HEAD_BYTES).cast::<Head>()).class as usize;
                (*block).next = self.free[class];
                self.free[class] = block;
            }
        }
    }

    fn in_section(&mut self, layout: Layout) -> Option<*mut u8> {
        let section = self.section;
        // SAFETY: the section is open.
        let head = unsafe { &mut *section };
        let base = head.next.next_multiple_of(offset(layout));
        let end = base.checked_add(offset(layout))?.checked_add(layout.size())?;
        if end > head.end {
            return None;
        }
        head.next = end;
        head.blocks.fetch_add(1, Ordering::Relaxed);
        let head = Head { kind: IN_SECTION, class: 0, section };
        Some(place_in(base as *mut u8, layout, head))
    }
}

fn free_small(block: *mut u8, class: usize) {
    let block = block.cast::<Free>();
    if IS_WRITER.get() {
        // SAFETY: this is the writer; every block of a class has room for a pointer.
        unsafe {
            let own = &mut *OWN.0.get();
            (*block).next = own.free[class];
            own.free[class] = block;
        }
        return;
    }
    let mut first = GIVEN_BACK.load(Ordering::Relaxed);
    loop {
        // SAFETY: the block is free, and this thread's until it is in the list.
        unsafe { (*block).next = first };
        match GIVEN_BACK.compare_exchange_weak(first, block, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// What the writer frees of the program's heap waits, chained by the field of the head that is for sections.
static LATER: AtomicPtr<Head> = AtomicPtr::new(null_mut());

fn free_later(block: *mut u8) {
    let head = block.wrapping_sub(HEAD_BYTES).cast::<Head>();
    // SAFETY: the head of a block that is free; only the writer uses the chain.
    unsafe { (*head).section = LATER.load(Ordering::Relaxed).cast() };
    LATER.store(head, Ordering::Relaxed);
}

/// Gives back what the writer has freed of the program's heap. For the writer, where it may wait for
/// `malloc`.
pub fn shrink() {
    let mut next = LATER.swap(null_mut(), Ordering::Relaxed);
    while !next.is_null() {
        let head = next;
        // SAFETY: as above; the system's blocks of this alignment are `malloc`'s, and begin with the head.
        unsafe {
            next = (*head).section.cast();
            libc::free(head.cast());
        }
    }
}

// ---- what is taken before a lock

#[repr(C, align(16))]
struct SectionHead {
    next: usize,
    end: usize,
    bytes: usize,
    /// Blocks that are not freed, and 1 while it is open.
    blocks: AtomicUsize,
}

/// While it lives, the writer's allocations come from memory that is there.
pub struct Section(*mut SectionHead);

impl Section {
    /// None: so much memory is not to be had. Only the writer needs one: others get an empty one.
    pub fn open(bytes: usize) -> Option<Section> {
        if !IS_WRITER.get() {
            return Some(Section(null_mut()));
        }
        let bytes =
            bytes.checked_add(size_of::<SectionHead>())?.checked_next_multiple_of(1 << 16)?;
        let base = map(bytes)?;
        let section = base.cast::<SectionHead>();
        let (next, end) = (base as usize + size_of::<SectionHead>(), base as usize + bytes);
        let blocks = AtomicUsize::new(1);
        // SAFETY: fresh memory of this size; this is the writer.
        unsafe {
            section.write(SectionHead { next, end, bytes, blocks });
            (*OWN.0.get()).section = section;
        }
        Some(Section(section))
    }
}

/// Runs `body`, whose allocations outlive the section that is open.
pub fn beside_section<T>(body: impl FnOnce() -> T) -> T {
    if !IS_WRITER.get() {
        return body();
    }
    let own = OWN.0.get();
    // SAFETY: this is the writer.
    let section = unsafe { core::mem::replace(&mut (*own).section, null_mut()) };
    let result = body();
    // SAFETY: as above.
    unsafe { (*own).section = section };
    result
}

impl Drop for Section {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: this is the writer, and the section was opened.
            unsafe {
                (*OWN.0.get()).section = null_mut();
                SectionHead::let_go(self.0);
            }
        }
    }
}

impl SectionHead {
    /// # Safety
    ///
    /// - The caller is one of those that are counted.
    unsafe fn let_go(section: *mut SectionHead) {
        // SAFETY: counted, so it is there.
        let (last, bytes) =
            unsafe { ((*section).blocks.fetch_sub(1, Ordering::AcqRel) == 1, (*section).bytes) };
        if last {
            // SAFETY: nothing in it is used any more.
            unsafe { libc::munmap(section.cast(), bytes) };
        }
    }
}

fn mapped_bytes(layout: Layout) -> usize {
    offset(layout)
        .saturating_add(layout.size())
        .checked_next_multiple_of(4096)
        .unwrap_or(usize::MAX)
}

/// The same mapping, of another size.
fn resized(block: *mut u8, layout: Layout, wanted: Layout) -> Option<*mut u8> {
    let (before, after) = (mapped_bytes(layout), mapped_bytes(wanted));
    let base = block.wrapping_sub(offset(layout)).cast();
    // SAFETY: a mapping of its own, of this size; it may move.
    let moved = unsafe { libc::mremap(base, before, after, libc::MREMAP_MAYMOVE) };
    (moved != libc::MAP_FAILED).then(|| moved.cast::<u8>().wrapping_add(offset(layout)))
}

fn map(bytes: usize) -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    let mapped = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    (mapped != libc::MAP_FAILED).then_some(mapped.cast())
}
