//! The mapped file: its creation, the contents of its head, and its removal.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use cachealloc_foreign::shared_memory;
use cachealloc_foreign::shared_memory::FOLDER;
use cachealloc_history::persistent::layout::*;
use cachealloc_options::Record;
use cachealloc_statistics::page;

use crate::clock::{epoch_offset_ns, now_ns};
use crate::record::persistent::OVER;
use crate::record::persistent::chunks::Taken;
use crate::record::persistent::files::{limit, remove_old, space};
use crate::record::settings;
use crate::thread_state::without_cancellation;
use crate::{identity, log, seccomp};

/// Share of the file system that files of dead processes may take.
const LEFT_SHARE: u64 = 4;

/// Chunks for stacks, texts and segments, in addition to those of eight full rings and as many
/// tables of blocks.
const SPARE_CHUNKS: usize = 4096;

/// The mapping. It is never unmapped.
pub(super) struct Area {
    pub base: *mut u8,
    pub chunks_max: usize,
    path: CString,
    pub taken: Mutex<Taken>,
}

// SAFETY: the mapping is divided among the users to which `taken` has given parts of it.
unsafe impl Sync for Area {}
// SAFETY: as above.
unsafe impl Send for Area {}

impl Area {
    pub(super) fn make() -> io::Result<Area> {
        let owner = identity::own()?;
        let user = identity::user();
        let (all, free) = space()?;
        remove_old(user, &owner, all / LEFT_SHARE);
        if free * 2 < all {
            return Err(io::Error::other("less than half of it is free"));
        }
        let chunks_max = CHUNKS_MAX.min(settings::get().max_entries as usize / 64 + SPARE_CHUNKS);
        let bytes = file_bytes(chunks_max);
        if bytes as u64 > limit(libc::RLIMIT_FSIZE) {
            return Err(io::Error::other(
                "the file would exceed the limit of this process (ulimit -f)",
            ));
        }
        // The program may need the addresses that are mapped and never used.
        if bytes as u64 > limit(libc::RLIMIT_AS) / 8 {
            return Err(io::Error::other("this process has too little address space (ulimit -v)"));
        }
        let name = shared_memory::name(NAME_BEGIN, user, &owner);
        // Read-only for all: only this descriptor can write it, so no other program does by
        // mistake.
        let (path, file) = shared_memory::create(&format!("{name}-{}", owner.start), 0o400)?;
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
        // SAFETY: a new mapping at an address of the kernel's choice; it is never unmapped. At
        // first without any rights: a program that keeps all its memory in place (`mlockall`) would
        // have all of it fetched.
        let base = unsafe { libc::mmap(null_mut(), bytes, none, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the whole mapping.
        if unsafe { libc::munlock(base, bytes) != 0 || libc::mprotect(base, bytes, rights) != 0 } {
            return Err(io::Error::last_os_error());
        }
        // A child that stays would keep the memory of its parent's whole history.
        // SAFETY: the whole mapping, which nothing in a child uses.
        unsafe { libc::madvise(base, bytes, libc::MADV_DONTFORK) };
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

    pub(super) fn note_settings(&self) {
        let settings = settings::get();
        let level = match settings.record {
            Record::Off => 0,
            Record::State => 1,
            Record::All => 2,
        };
        for (word, value) in [
            (WORD_LEVEL, level),
            (WORD_FROM_START, u64::from(settings::is_from_start())),
            (WORD_ENTRIES_MAX, settings.max_entries),
        ] {
            self.word(word).store(value, Ordering::Relaxed);
        }
    }

    /// Removes the file, which can hold no more. The users of its parts move back to process memory
    /// when they need more.
    pub(super) fn give_up(&self) {
        if !OVER.swap(true, Ordering::SeqCst) {
            if !seccomp::is_new() {
                let _ = without_cancellation(|| self.remove());
            }
            log::warn(format_args!(
                "history will not survive a crash from now on: the file in {FOLDER} cannot grow"
            ));
        }
    }

    /// Removes the file. Returns `false` if the process no longer has the right to do so, or has
    /// another root folder.
    pub(super) fn remove(&self) -> bool {
        // SAFETY: a C string.
        unsafe { libc::unlink(self.path.as_ptr()) == 0 }
    }

    /// Removes or invalidates the file when the process ends by itself. Safe in signal handlers.
    pub(super) fn end(&self) {
        if self.remove() {
            return;
        }
        // The history is not one of a killed process: the user's next program that records removes
        // it.
        self.word(WORD_MAGIC).store(0, Ordering::Release);
        self.forget_entries();
    }

    pub(super) fn word(&self, word: usize) -> &'static AtomicU64 {
        // SAFETY: the mapping is never unmapped, and every user accesses its words before the
        // chunks as atomics. Their pages were fetched.
        unsafe { &*self.base.cast::<AtomicU64>().wrapping_add(word) }
    }

    pub(super) fn chunk_at(&self, place: usize) -> usize {
        chunks_at(self.chunks_max) + place * CHUNK_BYTES
    }

    pub(super) fn chunk(&self, place: usize) -> *mut u8 {
        self.base.wrapping_add(self.chunk_at(place))
    }
}
