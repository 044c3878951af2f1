//! A list of rows of one size that grows at its end and never moves its rows. It uses chunks of an
//! allocator, which survive the process (`persistent`), or without an allocator its own memory.
//!
//! If the allocator has no more chunks, all rows move to the list's own memory and the chunks are
//! released.

pub(crate) mod copy;

/// Number of rows of a chunk.
pub const CHUNK_ROWS: usize = 2048;

/// Allocates chunks of zeroed rows.
pub trait ChunkAllocator<T: 'static>: Send {
    /// Allocates the chunk with this number. Returns `None` if no more are available; the chunks
    /// allocated so far are then no longer used.
    fn allocate(&mut self, number: usize) -> Option<&'static mut [T]>;

    fn release(&mut self, number: usize, chunk: &'static mut [T]);
}

pub struct Rows<T: 'static> {
    own: Vec<T>,
    chunked: Option<ChunkedRows<T>>,
}

struct ChunkedRows<T: 'static> {
    allocator: Box<dyn ChunkAllocator<T>>,
    chunks: Vec<&'static mut [T]>,
    len: usize,
}

impl<T> Default for Rows<T> {
    fn default() -> Rows<T> {
        Rows { own: Vec::new(), chunked: None }
    }
}

impl<T: Copy + Default + 'static> Rows<T> {
    pub const fn new() -> Rows<T> {
        Rows { own: Vec::new(), chunked: None }
    }

    pub fn allocated_by(allocator: Box<dyn ChunkAllocator<T>>) -> Rows<T> {
        Rows {
            own: Vec::new(),
            chunked: Some(ChunkedRows { allocator, chunks: Vec::new(), len: 0 }),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.chunked {
            Some(chunked) => chunked.len,
            None => self.own.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_chunked(&self) -> bool {
        self.chunked.is_some()
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match &self.chunked {
            None => self.own.get(index),
            Some(chunked) if index < chunked.len => {
                chunked.chunks.get(index / CHUNK_ROWS)?.get(index % CHUNK_ROWS)
            }
            Some(_) => None,
        }
    }

    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match &mut self.chunked {
            None => self.own.get_mut(index),
            Some(chunked) if index < chunked.len => {
                chunked.chunks.get_mut(index / CHUNK_ROWS)?.get_mut(index % CHUNK_ROWS)
            }
            Some(_) => None,
        }
    }

    /// Appends a row. The list holds at most `rows_max` rows and allocates memory for no more than
    /// that. Returns `false` if there is no memory.
    #[inline]
    pub fn push(&mut self, row: T, rows_max: usize) -> bool {
        let len = self.len();
        if !self.has_room(len + 1, rows_max) {
            return false;
        }
        match &mut self.chunked {
            None => self.own.push(row),
            Some(chunked) => {
                chunked.len += 1;
                chunked.chunks[len / CHUNK_ROWS][len % CHUNK_ROWS] = row;
            }
        }
        true
    }

    /// Grows the list to this length. Returns `false` if there is no memory.
    pub fn grow_to(&mut self, len: usize) -> bool {
        if len <= self.len() {
            return true;
        }
        if !self.has_room(len, usize::MAX) {
            return false;
        }
        match &mut self.chunked {
            None => self.own.resize(len, T::default()),
            Some(chunked) => chunked.len = len,
        }
        true
    }

    pub fn memory_bytes(&self) -> usize {
        let chunked = self.chunked.as_ref().map_or(0, |chunked| chunked.chunks.len() * CHUNK_ROWS);
        (self.own.capacity() + chunked) * size_of::<T>()
    }

    /// Removes all rows and frees their memory.
    pub fn clear(&mut self) {
        self.own = Vec::new();
        if let Some(chunked) = &mut self.chunked {
            chunked.give_back();
        }
    }

    #[inline]
    fn has_room(&mut self, len: usize, rows_max: usize) -> bool {
        match &self.chunked {
            None if len <= self.own.capacity() => true,
            Some(chunked) if len <= chunked.chunks.len() * CHUNK_ROWS => true,
            _ => self.make_room(len, rows_max),
        }
    }

    #[cold]
    fn make_room(&mut self, len: usize, rows_max: usize) -> bool {
        let Some(chunked) = &mut self.chunked else { return self.make_own_room(len, rows_max) };
        while chunked.chunks.len() * CHUNK_ROWS < len {
            if chunked.chunks.try_reserve(1).is_err() {
                return false;
            }
            let number = chunked.chunks.len();
            let Some(chunk) = chunked.allocator.allocate(number) else {
                return self.move_home() && self.make_own_room(len, rows_max);
            };
            assert_eq!(chunk.len(), CHUNK_ROWS);
            chunked.chunks.push(chunk);
        }
        true
    }

    /// Ensures capacity in the list's own memory, at most twice what is needed.
    fn make_own_room(&mut self, len: usize, rows_max: usize) -> bool {
        let there = self.own.len();
        if len <= self.own.capacity() {
            return true;
        }
        let wanted = len.max(2 * there).max(ROWS_FIRST).min(rows_max.max(len));
        self.own.try_reserve_exact(wanted - there).is_ok()
    }

    fn move_home(&mut self) -> bool {
        let Some(chunked) = &mut self.chunked else { return true };
        if self.own.try_reserve_exact(chunked.len).is_err() {
            return false;
        }
        let rows = chunked.chunks.iter().flat_map(|chunk| chunk.iter()).take(chunked.len);
        self.own.extend(rows);
        chunked.give_back();
        self.chunked = None;
        true
    }
}

impl<T> ChunkedRows<T> {
    fn give_back(&mut self) {
        self.len = 0;
        while let Some(chunk) = self.chunks.pop() {
            self.allocator.release(self.chunks.len(), chunk);
        }
    }
}

impl<T> Drop for ChunkedRows<T> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Initial capacity, in rows, of the list's own memory.
const ROWS_FIRST: usize = 256;
