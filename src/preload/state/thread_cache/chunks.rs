//! The shards of a context: one for each seat, created as seats need them.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::sync::atomic::Ordering;

use crate::heap;
use crate::process::seats::{SEATS_COUNT, SHARED};
use crate::state::thread::Thread;
use crate::state::thread_cache::ThreadCache;
use crate::state::thread_cache::shard::Shard;

/// Number of shards that are created at a time.
const SHARDS_PER_CHUNK: usize = 16;
pub(super) const CHUNKS: usize = SEATS_COUNT / SHARDS_PER_CHUNK;

/// The shards of some seats. Zeros are empty lists.
#[repr(align(4096))]
pub(super) struct Chunk([Shard; SHARDS_PER_CHUNK]);

const _: () = assert!(size_of::<Chunk>() == 4096);

impl ThreadCache {
    /// Gives the thread its list, if it has none yet, and makes it known (`known_shard`).
    #[inline(always)]
    pub(crate) fn settle(&self, thread: &Thread) {
        if !self.is_known(thread) {
            self.settle_slow(thread);
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_slow(&self, thread: &Thread) {
        if !thread.take_seat() {
            return;
        }
        let chunk = thread.seat() as usize / SHARDS_PER_CHUNK;
        if chunk > 0 && self.more[chunk - 1].load(Ordering::Acquire).is_null() {
            self.make(chunk);
        }
        self.find(thread);
    }

    fn make(&self, chunk: usize) {
        let Some(made) = heap::map_zeroed(size_of::<Chunk>()) else { return };
        let made = made.cast::<Chunk>();
        // SAFETY: a mapping of its size, which is that of a page; zeros are valid, and no other
        // thread knows it.
        unsafe { &mut *made }.begin();
        // The end is raised before any thread can put something there.
        self.more_end.fetch_max(chunk, Ordering::Release);
        let place = &self.more[chunk - 1];
        if place.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: as above. Another thread was faster, so this only costs addresses.
            unsafe {
                made.drop_in_place();
                heap::return_pages(&*made);
            }
        }
    }

    /// Returns the chunks that exist.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        let more = &self.more[..self.more_end.load(Ordering::Acquire)];
        // SAFETY: null, or a mapping that is never released.
        let more = more.iter().filter_map(|it| unsafe { it.load(Ordering::Acquire).as_ref() });
        core::iter::once(&self.first).chain(more)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.chunks().flat_map(|chunk| &chunk.0)
    }

    /// Returns whether this is the cache that the thread has used last.
    #[inline(always)]
    pub(crate) fn is_known(&self, thread: &Thread) -> bool {
        core::ptr::eq(thread.lists.get(), self.address())
    }

    /// Returns the thread's own shard if it is known. Then there is no function to call, and no
    /// register to save.
    #[inline(always)]
    pub(super) fn known_shard(&self, thread: &Thread) -> Option<&Shard> {
        // SAFETY: `find` sets it together with `lists`.
        self.is_known(thread).then(|| unsafe { &*thread.list.get().cast() })
    }

    /// Returns the thread's own shard, or the shared one of all threads without a seat.
    #[inline(always)]
    pub(super) fn shard(&self, thread: &Thread) -> &Shard {
        self.known_shard(thread).unwrap_or_else(|| self.find(thread))
    }

    #[inline(never)]
    fn find(&self, thread: &Thread) -> &Shard {
        let seat = thread.seat() as usize;
        let (chunk, place) = (seat / SHARDS_PER_CHUNK, seat % SHARDS_PER_CHUNK);
        let chunk = match chunk {
            0 => Some(&self.first),
            // SAFETY: as in `chunks`.
            _ => unsafe { self.more[chunk - 1].load(Ordering::Acquire).as_ref() },
        };
        let Some(chunk) = chunk else { return &self.first.0[SHARED as usize] };
        let shard = &chunk.0[place];
        if thread.seat() != SHARED {
            thread.list.set(core::ptr::from_ref(shard).cast());
            thread.lists.set(self.address());
        }
        shard
    }

    #[inline(always)]
    fn address(&self) -> *const c_void {
        core::ptr::from_ref(self).cast()
    }
}

impl Chunk {
    /// Initializes a chunk of zeros.
    pub(super) fn begin(&mut self) {
        self.0.iter_mut().for_each(|shard| shard.list.get_mut().past = Some(Box::default()));
    }
}
