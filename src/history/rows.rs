//! A list of rows of one size that grows at its end and never moves what is there: in chunks that
//! a lender provides, which outlive the process (`persistent`), or without one, in memory of its
//! own.
//!
//! Where no more chunks are lent, all rows move into memory of their own, and the chunks go back.

/// So many rows are lent at once.
pub const CHUNK_ROWS: usize = 2048;

/// Lends chunks of rows, all zero.
pub trait ChunkAllocator<T: 'static>: Send {
    /// The chunk of this number. None: there are no more, and what was lent is of no use any longer.
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

    /// Adds a row, with never more than `rows_max` in all, nor more memory than for that. False: there is
    /// no memory.
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

    /// Makes the list so long. False: there is no memory.
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

    /// Forgets all rows and gives their memory back.
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

    /// Never more than double of what is needed.
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

/// How many rows the first memory of our own is for.
const ROWS_FIRST: usize = 256;
