//! A list of rows of one size that grows at its end and never moves what is there: in chunks that
//! a lender provides, which outlive the process (`lasting`), or without one, in memory of its own.
//!
//! Where no more chunks are lent, all rows move into memory of their own, and the chunks go back.

/// So many rows are lent at once.
pub const CHUNK_ROWS: usize = 2048;

/// Lends chunks of rows, all zero.
pub trait Lender<T: 'static>: Send {
    /// The chunk of this number. None: there are no more, and what was lent is of no use any longer.
    fn lend(&mut self, number: usize) -> Option<&'static mut [T]>;

    fn take_back(&mut self, number: usize, chunk: &'static mut [T]);
}

pub struct Rows<T: 'static> {
    own: Vec<T>,
    lent: Option<Lent<T>>,
}

struct Lent<T: 'static> {
    lender: Box<dyn Lender<T>>,
    chunks: Vec<&'static mut [T]>,
    len: usize,
}

impl<T> Default for Rows<T> {
    fn default() -> Rows<T> {
        Rows { own: Vec::new(), lent: None }
    }
}

impl<T: Copy + Default + 'static> Rows<T> {
    pub const fn new() -> Rows<T> {
        Rows { own: Vec::new(), lent: None }
    }

    pub fn lent_by(lender: Box<dyn Lender<T>>) -> Rows<T> {
        Rows { own: Vec::new(), lent: Some(Lent { lender, chunks: Vec::new(), len: 0 }) }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match &self.lent {
            Some(lent) => lent.len,
            None => self.own.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match &self.lent {
            None => self.own.get(index),
            Some(lent) if index < lent.len => {
                lent.chunks.get(index / CHUNK_ROWS)?.get(index % CHUNK_ROWS)
            }
            Some(_) => None,
        }
    }

    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match &mut self.lent {
            None => self.own.get_mut(index),
            Some(lent) if index < lent.len => {
                lent.chunks.get_mut(index / CHUNK_ROWS)?.get_mut(index % CHUNK_ROWS)
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
        match &mut self.lent {
            None => self.own.push(row),
            Some(lent) => {
                lent.len += 1;
                lent.chunks[len / CHUNK_ROWS][len % CHUNK_ROWS] = row;
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
        match &mut self.lent {
            None => self.own.resize(len, T::default()),
            Some(lent) => lent.len = len,
        }
        true
    }

    pub fn memory_bytes(&self) -> usize {
        let lent = self.lent.as_ref().map_or(0, |lent| lent.chunks.len() * CHUNK_ROWS);
        (self.own.capacity() + lent) * size_of::<T>()
    }

    /// Forgets all rows and gives their memory back.
    pub fn clear(&mut self) {
        self.own = Vec::new();
        if let Some(lent) = &mut self.lent {
            lent.give_back();
        }
    }

    #[inline]
    fn has_room(&mut self, len: usize, rows_max: usize) -> bool {
        match &self.lent {
            None if len <= self.own.capacity() => true,
            Some(lent) if len <= lent.chunks.len() * CHUNK_ROWS => true,
            _ => self.make_room(len, rows_max),
        }
    }

    #[cold]
    fn make_room(&mut self, len: usize, rows_max: usize) -> bool {
        let Some(lent) = &mut self.lent else { return self.make_own_room(len, rows_max) };
        while lent.chunks.len() * CHUNK_ROWS < len {
            if lent.chunks.try_reserve(1).is_err() {
                return false;
            }
            let number = lent.chunks.len();
            let Some(chunk) = lent.lender.lend(number) else {
                return self.move_home() && self.make_own_room(len, rows_max);
            };
            assert_eq!(chunk.len(), CHUNK_ROWS);
            lent.chunks.push(chunk);
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
        let Some(lent) = &mut self.lent else { return true };
        if self.own.try_reserve_exact(lent.len).is_err() {
            return false;
        }
        let rows = lent.chunks.iter().flat_map(|chunk| chunk.iter()).take(lent.len);
        self.own.extend(rows);
        lent.give_back();
        self.lent = None;
        true
    }
}

impl<T> Lent<T> {
    fn give_back(&mut self) {
        self.len = 0;
        while let Some(chunk) = self.chunks.pop() {
            self.lender.take_back(self.chunks.len(), chunk);
        }
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// How many rows the first memory of our own is for.
const ROWS_FIRST: usize = 256;
