//! Chunks of the file: given to recorders, taken back, and fetched before they are needed.

use core::sync::atomic::Ordering;

use cachealloc_history::persistent::layout::*;
use cachealloc_history::persistent::log::{PIECE_WORDS, PIECES};

use crate::lock::lock;
use crate::record::persistent::OVER;
use crate::record::persistent::area::Area;
use crate::record::persistent::files::space;
use crate::seccomp;
use crate::thread_state::without_cancellation;

/// Number of chunks that are fetched before they are needed: 320 KiB, and up to 20 MiB if entries
/// come fast.
const AHEAD_MIN: usize = 4;
const AHEAD_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Taken {
    pub owners: usize,
    chunks: usize,
    /// Chunks below this one were fetched.
    fetched: usize,
    /// Number of chunks at the writer's last look.
    chunks_before: usize,
    /// Chunks that were returned.
    free: Vec<usize>,
    /// The current chunk of texts and stacks: its place, its number, and how many of its pieces are
    /// taken.
    log: Option<(usize, usize, usize)>,
}

impl Area {
    /// Takes a chunk of zeros. Returns `None` if there is no more, and the file is removed.
    pub(super) fn take(&'static self, kind: u8, owner: usize, number: usize) -> Option<usize> {
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

    /// Fetches as many chunks as may be needed until the next look, so that recording does not have
    /// to wait for them. For the writer.
    pub(super) fn fetch_ahead(&self) {
        let (first, wanted) = {
            let mut taken = lock(&self.taken);
            let used = taken.chunks - taken.chunks_before;
            taken.chunks_before = taken.chunks;
            let ahead = (2 * used).clamp(AHEAD_MIN, AHEAD_MAX);
            (taken.fetched.max(taken.chunks), taken.chunks + ahead)
        };
        for place in first..wanted {
            if !self.fetch_chunk(place) {
                return; // the next request for it fails as well
            }
            let mut taken = lock(&self.taken);
            taken.fetched = taken.fetched.max(place + 1);
        }
    }

    /// Fetches a chunk. Returns `false` if there is no memory for it.
    fn fetch_chunk(&self, place: usize) -> bool {
        // Under a filter for system calls, the program may not ask.
        let has_space = || seccomp::is_new() || space().is_ok_and(|(all, free)| free * 2 >= all);
        place < self.chunks_max
            && has_space()
            // The chunk's word in the table; a page of these words is fetched with the first.
            && (!place.is_multiple_of(PAGE_BYTES / 8) || self.fetch(TABLE_AT + place * 8, 8))
            && self.fetch(self.chunk_at(place), CHUNK_BYTES)
    }

    /// Frees the memory of the entries, which are most of the file and are never read in place.
    /// Threads may still record. Safe in signal handlers: if the lock is taken there, the memory
    /// stays.
    pub(super) fn forget_entries(&self) {
        let Ok(taken) = self.taken.try_lock() else { return };
        for place in 0..taken.chunks {
            let word = self.word((TABLE_AT + place * 8) / 8).load(Ordering::Acquire);
            if chunk_of(word).0 == ENTRIES {
                // SAFETY: a chunk of numbers, which reads as zeros afterwards.
                unsafe { libc::madvise(self.chunk(place).cast(), CHUNK_BYTES, libc::MADV_REMOVE) };
            }
        }
    }

    pub(super) fn give_back(&self, place: usize) {
        self.word((TABLE_AT + place * 8) / 8).store(0, Ordering::Release);
        let chunk = self.chunk(place);
        // SAFETY: the chunk has no user any more. Its memory is returned to the system, and reads
        // as zeros next time.
        let done = unsafe { libc::madvise(chunk.cast(), CHUNK_BYTES, libc::MADV_REMOVE) };
        let mut taken = lock(&self.taken);
        if done == 0 && taken.free.try_reserve(1).is_ok() {
            taken.free.push(place);
        }
    }

    #[allow(clippy::mut_from_ref)] // each piece is given out once
    pub(super) fn piece(&'static self) -> Option<&'static mut [u64]> {
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
        // SAFETY: zeros in a chunk that is never returned, aligned, and given out once.
        Some(unsafe { core::slice::from_raw_parts_mut(piece, PIECE_WORDS) })
    }

    /// Makes the kernel fetch these pages, as a write does. Returns `false` if there is no memory
    /// for them.
    pub(super) fn fetch(&self, at: usize, bytes: usize) -> bool {
        /// Since Linux 5.14, and faster than page by page.
        const MADV_POPULATE_WRITE: i32 = 23;
        /// Adds 0 to the second word, and wakes no thread for it.
        const ADD_0: u32 = 1 << 28;
        let begin = at / PAGE_BYTES * PAGE_BYTES;
        let whole = self.base.wrapping_add(begin).cast();
        // SAFETY: pages of the mapping, in which nothing changes.
        if unsafe { libc::madvise(whole, at + bytes - begin, MADV_POPULATE_WRITE) } == 0 {
            return true;
        }
        (at / PAGE_BYTES..(at + bytes).div_ceil(PAGE_BYTES)).all(|page| {
            let word = self.base.wrapping_add(page * PAGE_BYTES);
            // SAFETY: the kernel adds 0 to a word of the mapping, or returns an error.
            let code = unsafe {
                libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE_OP, 0, 0usize, word, ADD_0)
            };
            code >= 0
        })
    }
}
