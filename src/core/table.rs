//! Rows addressed by a small number. Removed rows are reused, last removed first, so that the table
//! stays as short as the largest number of rows that ever lived together.
//!
//! A table of many rows grows by megabytes, which the system may refuse: so an insertion requests
//! memory before.

use alloc::vec::Vec;

#[derive(Clone)]
pub(crate) struct Table<T> {
    rows: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Table<T> {
        Table { rows: Vec::new(), vacant: Vec::new() }
    }

    /// Returns whether this many rows can be inserted, and any removed, without more memory from
    /// the system.
    #[inline]
    pub(crate) fn has_room(&mut self, count: usize) -> bool {
        let spare = self.rows.capacity() - self.rows.len() + self.vacant.len();
        let removable = self.vacant.capacity() >= self.rows.capacity();
        spare >= count && removable || self.make_room(count)
    }

    #[cold]
    fn make_room(&mut self, count: usize) -> bool {
        self.rows.try_reserve(count).is_ok()
            && self.vacant.try_reserve_exact(self.rows.capacity() - self.vacant.len()).is_ok()
    }

    pub(crate) fn insert(&mut self, row: T) -> u32 {
        if let Some(number) = self.vacant.pop() {
            debug_assert!(self.rows[number as usize].is_none(), "vacant row {number} is in use");
            self.rows[number as usize] = Some(row);
            return number;
        }
        let number = u32::try_from(self.rows.len()).expect("fewer than 2^32 rows");
        self.rows.push(Some(row));
        number
    }

    /// Returns an existing row, and the place of a new one, which the caller fills.
    #[inline(always)]
    pub(crate) fn beside(&mut self, number: u32) -> (&mut T, u32, &mut Option<T>) {
        let other = self.vacant.pop().unwrap_or_else(|| self.push_vacant());
        let both = self.rows.get_disjoint_mut([number as usize, other as usize]);
        let Ok([Some(row), place]) = both else { no_row(number) };
        debug_assert!(place.is_none(), "vacant row {other} is in use");
        (row, other, place)
    }

    /// Returns a row, and the place of another one. A caller that empties the place calls
    /// `note_vacant`.
    #[inline(always)]
    pub(crate) fn with_place(&mut self, number: u32, other: u32) -> (&mut T, &mut Option<T>) {
        match self.rows.get_disjoint_mut([number as usize, other as usize]) {
            Ok([Some(row), place]) => (row, place),
            _ => no_row(number),
        }
    }

    #[inline(always)]
    pub(crate) fn note_vacant(&mut self, number: u32) {
        self.vacant.push(number);
    }

    #[cold]
    fn push_vacant(&mut self) -> u32 {
        let number = u32::try_from(self.rows.len()).expect("fewer than 2^32 rows");
        self.rows.push(None);
        number
    }

    #[inline]
    pub(crate) fn remove(&mut self, number: u32) -> T {
        let row = self.rows[number as usize].take().expect("the row is in use");
        self.vacant.push(number);
        row
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.rows.get(number as usize)?.as_ref()
    }

    /// Returns a row. A number without a row is a fault of this crate: better to stop than to
    /// guess.
    #[inline(always)]
    pub(crate) fn at(&self, number: u32) -> &T {
        match self.rows.get(number as usize) {
            Some(Some(row)) => row,
            _ => no_row(number),
        }
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, number: u32) -> &mut T {
        match self.rows.get_mut(number as usize) {
            Some(Some(row)) => row,
            _ => no_row(number),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len() - self.vacant.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.rows
            .iter()
            .enumerate()
            .filter_map(|(number, row)| Some((number as u32, row.as_ref()?)))
    }
}

/// Cold and out of line, so that the hit path does not set up the panic message.
#[cold]
#[inline(never)]
fn no_row(number: u32) -> ! {
    panic!("row {number} is not in use, or asked for twice at once")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system may refuse memory, and an insertion or a removal cannot fail.
    #[test]
    fn free_rows_need_no_memory() {
        let mut table = Table::new();
        let capacities = |table: &Table<u8>| (table.rows.capacity(), table.vacant.capacity());
        // These came without a question.
        let mut numbers: Vec<u32> = (0..50).map(|_| table.insert(0)).collect();
        for count in [1, 2, 3, 100, 5, 1_000] {
            assert!(table.has_room(count));
            assert_eq!(table.vacant.capacity(), table.rows.capacity(), "no more than is needed");
            let before = capacities(&table);
            numbers.extend((0..count).map(|_| table.insert(0)));
            for number in &numbers {
                table.remove(*number);
            }
            numbers.iter_mut().for_each(|number| *number = table.insert(0));
            assert_eq!(capacities(&table), before, "{count} more");
        }
    }
}
