//! The history in memory that outlives the process: a file in `/dev/shm` that is mapped into it, whose layout
//! is `cachealloc_history::lasting`. It goes at a clean end; when the process is killed, `cachealloc recover`
//! makes a snapshot of it.
//!
//! Note [Lasting]. The rings, the rows and the stacks lie there and nowhere else, so recording them costs what
//! it costs without. A page of such a file that cannot be had is a SIGBUS for whoever writes it, so each chunk
//! is fetched by the kernel first (`fetch`), which says where there is none; and the file takes memory only
//! while half of the file system is free, because others in a container share it and die of its end. Where
//! that is not so, the history moves back into the process's own memory, with a line, and the file goes.
//! A file that somebody cuts short is a SIGBUS as well: its mode lets nobody write it but root.
//!
//! The file is not kept open: programs close descriptors that they do not know. A forked child has the mapping
//! and never uses it: nothing is recorded there.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use cachealloc_history::lasting::layout::*;
use cachealloc_history::lasting::log::{PIECE_WORDS, PIECES};
use cachealloc_history::{CHUNK_ROWS, Entry, Lender, PieceLender, Ring, Rows, Settings};
use cachealloc_options::Record;
use cachealloc_statistics::page;

use crate::clock::{epoch_offset_ns, now_ns};
use crate::lock::lock;
use crate::preserved::{preserving_thread_state, without_cancellation};
use crate::record::{self, settings};
use crate::{filter, identity, log};

mod files;
mod names;

use files::{create, limit, remove_old, space};
pub use names::{keep_up, next};

const FOLDER: &str = "/dev/shm";

/// What dead processes have left may take this share of the file system.
const LEFT_SHARE: u64 = 4;

static AREA: OnceLock<Option<Area>> = OnceLock::new();
/// The file is of no use any longer, or has gone.
static OVER: AtomicBool = AtomicBool::new(false);
/// The process ends without the snapshot that was promised: the file stays.
static KEPT: AtomicBool = AtomicBool::new(false);

/// The mapping. It lives for ever.
struct Area {
    base: *mut u8,
    chunks_max: usize,
    path: CString,
    taken: Mutex<Taken>,
}

// SAFETY: the mapping is divided among those that `taken` has given parts of it.
unsafe impl Sync for Area {}
// SAFETY: as above.
unsafe impl Send for Area {}

#[derive(Default)]
struct Taken {
    owners: usize,
    chunks: usize,
    /// Chunks below this were fetched.
    fetched: usize,
    /// How many chunks there were at the last look of the writer.
    chunks_before: usize,
    /// Chunks that were given back.
    free: Vec<usize>,
    /// Of texts and stacks: the chunk, how many there were before it, and how many of its pieces are taken.
    log: Option<(usize, usize, usize)>,
}

/// A part of the file, for one context, or for one device's memory of the driver's own.
#[derive(Clone, Copy)]
pub struct Owner {
    area: &'static Area,
    number: usize,
}

/// A new owner; none where the history does not outlive the process.
pub fn owner(kind: u64, device: i32) -> Option<Owner> {
    let area = area()?;
    let number = {
        let mut taken = lock(&area.taken);
        taken.owners += 1;
        taken.owners - 1
    };
    let is_there = number < OWNERS_MAX && area.fetch(OWNERS_AT + number * OWNER_BYTES, OWNER_BYTES);
    if !is_there {
        area.give_up();
        return None;
    }
    let owner = Owner { area, number };
    owner.word(OWNER_DEVICE).store(device.max(0) as u64, Ordering::Relaxed);
    owner.word(OWNER_KIND).store(kind, Ordering::Release);
    Some(owner)
}

/// A ring for so many entries.
pub fn ring(owner: Option<Owner>, entries_max: usize) -> Ring {
    owner.map_or_else(|| Ring::new(entries_max), |owner| owner.ring(entries_max))
}

impl Owner {
    fn ring(self, entries_max: usize) -> Ring {
        self.word(OWNER_PUSHED).store(0, Ordering::Relaxed);
        self.word(OWNER_ENTRIES_MAX).store(entries_max.max(1) as u64, Ordering::Release);
        Ring::lasting(entries_max, self.lender(ENTRIES), self.word(OWNER_PUSHED))
    }

    pub fn blocks(self) -> Rows<BlockRow> {
        Rows::lent_by(self.lender(BLOCKS))
    }

    pub fn segments(self) -> Rows<SegmentRow> {
        Rows::lent_by(self.lender(SEGMENTS))
    }

    /// Whether what it has tells one story. Call before the first entry.
    pub fn set_on(self, on: bool) {
        if on {
            self.word(OWNER_PUSHED).store(0, Ordering::Release);
        }
        self.word(OWNER_ON).store(u64::from(on), Ordering::Release);
    }

    fn word(self, word: usize) -> &'static AtomicU64 {
        self.area.word(OWNERS_AT / 8 + self.number * OWNER_WORDS + word)
    }

    fn lender(self, kind: u8) -> Box<Chunks> {
        Box::new(Chunks { owner: self, kind, places: Vec::new() })
    }
}

/// The chunks of one kind of one owner.
struct Chunks {
    owner: Owner,
    kind: u8,
    places: Vec<usize>,
}

/// # Safety
///
/// - Zeros are a value of the type.
unsafe trait OfZeros: Send + 'static {}
// SAFETY: numbers, and an action of number 0.
unsafe impl OfZeros for Entry {}
// SAFETY: numbers.
unsafe impl OfZeros for BlockRow {}
// SAFETY: numbers.
unsafe impl OfZeros for SegmentRow {}

impl<T: OfZeros> Lender<T> for Chunks {
    fn lend(&mut self, number: usize) -> Option<&'static mut [T]> {
        const { assert!(size_of::<T>() * CHUNK_ROWS == CHUNK_BYTES) }
        self.places.try_reserve(1).ok()?;
        let place = self.owner.area.take(self.kind, self.owner.number, number)?;
        self.places.push(place);
        let chunk = self.owner.area.chunk(place).cast::<T>();
        // SAFETY: zeros, nobody else's until `take_back`, and aligned to pages.
        Some(unsafe { core::slice::from_raw_parts_mut(chunk, CHUNK_ROWS) })
    }

    fn take_back(&mut self, number: usize, _: &'static mut [T]) {
        if let Some(place) = self.places.get(number).copied() {
            self.places.truncate(number);
            self.owner.area.give_back(place);
        }
    }
}

/// Lends pieces for stacks.
pub struct Pieces;

impl PieceLender for Pieces {
    fn lend_piece(&self) -> Option<&'static mut [u64]> {
        AREA.get()?.as_ref()?.piece()
    }
}

/// Makes ready where something is recorded: the file, and what it says of the process. In a thread of the
/// program that may open files.
pub fn begin(settings: impl FnOnce() -> Settings) {
    if record::is_on() && area().is_some() {
        preserving_thread_state(|| names::begin(settings));
    }
}

/// Says what is recorded from here on.
pub fn note_settings() {
    if let Some(area) = made() {
        area.note_settings();
    }
}

/// Whether there is a file that a process which is killed leaves.
pub fn is_on() -> bool {
    made().is_some()
}

/// The snapshot that was promised for the end does not come. Answers whether there will be another way.
pub fn keep() -> bool {
    KEPT.store(true, Ordering::SeqCst);
    is_on()
}

/// The process ends, and all that it had to say is written. For signal handlers, too; see `live::end`.
pub fn end() {
    let is_wanted = identity::is_ours() && !KEPT.load(Ordering::SeqCst);
    if let Some(area) = made()
        && is_wanted
        && !filter::is_new()
        && !OVER.swap(true, Ordering::SeqCst)
    {
        area.remove();
    }
}

/// The area, if there is one already.
fn made() -> Option<&'static Area> {
    AREA.get()?.as_ref().filter(|_| !OVER.load(Ordering::Relaxed))
}

fn area() -> Option<&'static Area> {
    let make = || {
        if !record::is_on() || !identity::is_ours() || filter::is_new() {
            return None;
        }
        preserving_thread_state(Area::make)
            .inspect_err(|error| {
                log::warn(format_args!("a kill would lose what is recorded: {FOLDER}: {error}"));
            })
            .ok()
    };
    AREA.get_or_init(make).as_ref().filter(|_| !OVER.load(Ordering::Relaxed))
}

impl Area {
    fn make() -> io::Result<Area> {
        let owner = page::Owner { process_id: std::process::id(), ..identity::owner_of("self")? };
        // SAFETY: asks the kernel for a number.
        let user = unsafe { libc::geteuid() };
        let (all, free) = space()?;
        remove_old(user, &owner, all / LEFT_SHARE);
        if free * 2 < all {
            return Err(io::Error::other("less than half of it is free"));
        }
        let chunks_max = CHUNKS_MAX.min(settings::get().entries_max / 64 + SPARE_CHUNKS);
        let bytes = file_bytes(chunks_max);
        if bytes as u64 > limit(libc::RLIMIT_FSIZE) {
            return Err(io::Error::other("files of this process may not be so large (ulimit -f)"));
        }
        // What is mapped and never used the program may miss.
        if bytes as u64 > limit(libc::RLIMIT_AS) / 8 {
            return Err(io::Error::other("this process has few addresses (ulimit -v)"));
        }
        let page::Owner { process_id, start, namespace } = owner;
        let name = format!("{NAME_BEGIN}{user}-{namespace}-{process_id}-{start}");
        let path = Path::new(FOLDER).join(&name);
        let (path, file) = match create(&path) {
            Ok(file) => (path, file),
            // Another user's, which may have been put there to be in our way.
            Err(_) => {
                let path = Path::new(FOLDER).join(format!("{name}.{:016x}", identity::random()));
                let file = create(&path)?;
                (path, file)
            }
        };
        let made = Area::map(&file, chunks_max, bytes, &path);
        let made = made.and_then(|area| area.write_head(&owner).map(|()| area));
        if made.is_err() {
            let _ = fs::remove_file(&path);
        }
        made
    }

    fn map(file: &File, chunks_max: usize, bytes: usize, path: &Path) -> io::Result<Area> {
        file.set_len(bytes as u64)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (none, fd) = (libc::PROT_NONE, file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice; it lives for ever. At first without any
        // rights: a program that keeps all its memory in place (`mlockall`) would have all of it fetched.
        let base = unsafe { libc::mmap(null_mut(), bytes, none, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the whole mapping.
        if unsafe { libc::munlock(base, bytes) != 0 || libc::mprotect(base, bytes, rights) != 0 } {
            return Err(io::Error::last_os_error());
        }
        let path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Area { base: base.cast(), chunks_max, path, taken: Mutex::default() })
    }

    fn write_head(&self, owner: &page::Owner) -> io::Result<()> {
        if !self.fetch(0, PAGE_BYTES) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let time_ns = now_ns();
        for (word, value) in [
            (WORD_LAYOUT, LAYOUT),
            (WORD_PROCESS, u64::from(owner.process_id)),
            (WORD_START, owner.start),
            (WORD_NAMESPACE, owner.namespace),
            (WORD_CHUNKS_MAX, self.chunks_max as u64),
            (WORD_TIME_NS, time_ns),
            (WORD_EPOCH_US, time_ns.wrapping_add(epoch_offset_ns()) / 1000),
            (WORD_SEEN_US, time_ns.wrapping_add(epoch_offset_ns()) / 1000),
        ] {
            self.word(word).store(value, Ordering::Relaxed);
        }
        self.note_settings();
        self.word(WORD_MAGIC).store(MAGIC, Ordering::Release);
        Ok(())
    }

    fn note_settings(&self) {
        let settings = settings::get();
        let level = match settings.level {
            Record::Off => 0,
            Record::State => 1,
            Record::All => 2,
        };
        for (word, value) in [
            (WORD_LEVEL, level),
            (WORD_FROM_START, u64::from(settings::is_from_start())),
            (WORD_ENTRIES_MAX, settings.entries_max as u64),
        ] {
            self.word(word).store(value, Ordering::Relaxed);
        }
    }

    /// A chunk of zeros. None: there is no more, and the file has gone.
    fn take(&'static self, kind: u8, owner: usize, number: usize) -> Option<usize> {
        if OVER.load(Ordering::Relaxed) {
            return None;
        }
        let place =
            without_cancellation(|| self.take_locked(&mut lock(&self.taken), kind, owner, number));
        if place.is_none() {
            self.give_up();
        }
        place
    }

    fn take_locked(
        &self,
        taken: &mut Taken,
        kind: u8,
        owner: usize,
        number: usize,
    ) -> Option<usize> {
        let reused = taken.free.pop();
        let place = reused.unwrap_or(taken.chunks);
        if reused.is_none() {
            taken.chunks += 1;
        }
        if (reused.is_some() || place >= taken.fetched) && !self.fetch_chunk(place) {
            return None;
        }
        let word = (TABLE_AT + place * 8) / 8;
        self.word(word).store(chunk_word(kind, owner, number), Ordering::Release);
        Some(place)
    }

    /// Fetches as many chunks as may be needed until the next look, so that recording finds them there. For
    /// the writer.
    fn fetch_ahead(&self) {
        let (first, wanted) = {
            let mut taken = lock(&self.taken);
            let used = taken.chunks - taken.chunks_before;
            taken.chunks_before = taken.chunks;
            let ahead = (2 * used).clamp(AHEAD_MIN, AHEAD_MAX);
            (taken.fetched.max(taken.chunks), taken.chunks + ahead)
        };
        for place in first..wanted {
            if !self.fetch_chunk(place) {
                return; // who needs it will find out
            }
            let mut taken = lock(&self.taken);
            taken.fetched = taken.fetched.max(place + 1);
        }
    }

    /// False: it is not to be had.
    fn fetch_chunk(&self, place: usize) -> bool {
        // A program under a filter may not ask.
        let has_space = || filter::is_new() || space().is_ok_and(|(all, free)| free * 2 >= all);
        place < self.chunks_max
            && has_space()
            // Its word in the table: a page of them is fetched with the first.
            && (!place.is_multiple_of(PAGE_BYTES / 8) || self.fetch(TABLE_AT + place * 8, 8))
            && self.fetch(self.chunk_at(place), CHUNK_BYTES)
    }

    fn give_back(&self, place: usize) {
        self.word((TABLE_AT + place * 8) / 8).store(0, Ordering::Release);
        let chunk = self.chunk(place);
        // SAFETY: nobody's any longer. Memory goes back to the system, and zeros are there next time.
        let done = unsafe { libc::madvise(chunk.cast(), CHUNK_BYTES, libc::MADV_REMOVE) };
        let mut taken = lock(&self.taken);
        if done == 0 && taken.free.try_reserve(1).is_ok() {
            taken.free.push(place);
        }
    }

    #[allow(clippy::mut_from_ref)] // each piece is given out once
    fn piece(&'static self) -> Option<&'static mut [u64]> {
        if OVER.load(Ordering::Relaxed) {
            return None;
        }
        let place = without_cancellation(|| {
            let mut taken = lock(&self.taken);
            let (chunk, number, piece) = match taken.log {
                Some((chunk, number, piece)) if piece < PIECES => (chunk, number, piece),
                log => {
                    let number = log.map_or(0, |(_, number, _)| number + 1);
                    (self.take_locked(&mut taken, LOG, 0, number)?, number, 0)
                }
            };
            taken.log = Some((chunk, number, piece + 1));
            Some((chunk, piece))
        });
        let Some((chunk, piece)) = place else {
            self.give_up();
            return None;
        };
        let piece = self.chunk(chunk).cast::<u64>().wrapping_add(piece * PIECE_WORDS);
        // SAFETY: zeros in a chunk that never goes back, aligned, and given out once.
        Some(unsafe { core::slice::from_raw_parts_mut(piece, PIECE_WORDS) })
    }

    /// Has the kernel fetch these pages, as a write does. False: they are not to be had.
    fn fetch(&self, at: usize, bytes: usize) -> bool {
        /// Since Linux 5.14, and faster than page by page.
        const MADV_POPULATE_WRITE: i32 = 23;
        /// Adds 0 to the second word, and wakes nobody for it.
        const ADD_0: u32 = 1 << 28;
        let begin = at / PAGE_BYTES * PAGE_BYTES;
        let whole = self.base.wrapping_add(begin).cast();
        // SAFETY: pages of the mapping, in which nothing changes.
        if unsafe { libc::madvise(whole, at + bytes - begin, MADV_POPULATE_WRITE) } == 0 {
            return true;
        }
        (at / PAGE_BYTES..(at + bytes).div_ceil(PAGE_BYTES)).all(|page| {
            let word = self.base.wrapping_add(page * PAGE_BYTES);
            // SAFETY: the kernel adds 0 to a word of the mapping; where it cannot, it says so.
            let code = unsafe {
                libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_OP, 0, 0usize, word, ADD_0)
            };
            code >= 0
        })
    }

    /// The file can hold no more: it goes, and whoever has a part of it moves back when it needs more.
    fn give_up(&self) {
        if !OVER.swap(true, Ordering::SeqCst) {
            if !filter::is_new() {
                without_cancellation(|| self.remove());
            }
            log::warn(format_args!(
                "a kill would lose what is recorded from now on: its file in {FOLDER} can take no more"
            ));
        }
    }

    fn remove(&self) {
        // SAFETY: a C string.
        unsafe { libc::unlink(self.path.as_ptr()) };
    }

    fn word(&self, word: usize) -> &'static AtomicU64 {
        // SAFETY: the mapping lives for ever, and its words before the chunks are atomics for everybody. Their
        // pages were fetched.
        unsafe { &*self.base.cast::<AtomicU64>().wrapping_add(word) }
    }

    fn chunk_at(&self, place: usize) -> usize {
        chunks_at(self.chunks_max) + place * CHUNK_BYTES
    }

    fn chunk(&self, place: usize) -> *mut u8 {
        self.base.wrapping_add(self.chunk_at(place))
    }
}

/// Chunks that are fetched before they are needed: 320 KiB, and up to 20 MiB where entries come fast.
const AHEAD_MIN: usize = 4;
const AHEAD_MAX: usize = 256;
/// Beside what eight full rings and as many tables of blocks take: stacks, texts, segments.
const SPARE_CHUNKS: usize = 4096;
