//! A copy of rows as of one moment, the *cut*, made while they continue to change: a piece at a
//! time, each time under the lock of the rows, so that no thread waits long. A thread that is about
//! to change a row keeps the row's piece for the copy, unless it was copied already.

use crate::rows::Rows;

/// Number of rows of a piece, few enough that keeping one takes a microsecond.
const PIECE_ROWS: usize = 256;
/// Number of pieces that are copied at once.
const PIECES_AT_ONCE: usize = 8;

pub struct RowsCopy<T> {
    len: usize,
    pieces: Vec<Piece<T>>,
    /// Number of the next piece to copy.
    next: usize,
}

enum Piece<T> {
    /// As at the cut.
    Unchanged,
    /// The rows at the cut; they have changed since.
    Kept(Vec<T>),
    Copied,
}

impl<T: Copy + Default + 'static> RowsCopy<T> {
    /// Bytes that `begin` allocates.
    pub fn bytes(rows: &Rows<T>) -> usize {
        rows.len().div_ceil(PIECE_ROWS) * size_of::<Piece<T>>()
    }

    /// Makes the cut.
    pub fn begin(rows: &Rows<T>) -> RowsCopy<T> {
        let count = rows.len().div_ceil(PIECE_ROWS);
        let pieces = (0..count).map(|_| Piece::Unchanged).collect();
        RowsCopy { len: rows.len(), pieces, next: 0 }
    }

    /// Keeps a row that is about to change. Returns `false` if there is no memory for it; the copy
    /// is then of no use any longer.
    pub fn keep(&mut self, rows: &Rows<T>, index: usize) -> bool {
        if index >= self.len {
            return true;
        }
        let number = index / PIECE_ROWS;
        if let Some(piece @ Piece::Unchanged) = self.pieces.get_mut(number) {
            let mut kept = Vec::new();
            if kept.try_reserve_exact(PIECE_ROWS).is_err() {
                return false;
            }
            kept.extend(piece_of(rows, number, self.len));
            *piece = Piece::Kept(kept);
        }
        true
    }

    /// Replaces `some`, which comes from `room`, by the next rows. Allocates nothing. Returns
    /// `false` if there are no more.
    pub fn copy(&mut self, rows: &Rows<T>, some: &mut Vec<T>) -> bool {
        some.clear();
        let has_more = self.next < self.pieces.len();
        for piece in self.pieces.iter_mut().skip(self.next).take(PIECES_AT_ONCE) {
            match core::mem::replace(piece, Piece::Copied) {
                Piece::Kept(kept) => some.extend(kept),
                _ => some.extend(piece_of(rows, self.next, self.len)),
            }
            self.next += 1;
        }
        has_more
    }

    /// Returns memory for some rows.
    pub fn room() -> Vec<T> {
        Vec::with_capacity(PIECES_AT_ONCE * PIECE_ROWS)
    }
}

fn piece_of<T: Copy + Default + 'static>(
    rows: &Rows<T>,
    number: usize,
    len: usize,
) -> impl Iterator<Item = T> {
    let begin = number * PIECE_ROWS;
    (begin..len.min(begin + PIECE_ROWS)).filter_map(|index| rows.get(index).copied())
}
