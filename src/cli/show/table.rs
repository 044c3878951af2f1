//! Columns of text.

use std::fmt::Write as _;

use cachealloc_text::{cut, plain};
use unicode_width::UnicodeWidthStr;

const GAP: usize = 2;
/// What is longer is cut: a table is for eyes, and one hostile name must not push all others out of sight.
const CELL_LETTERS_MAX: usize = 1000;

#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub title: &'static str,
    pub is_number: bool,
    /// Left out where all its cells are empty.
    pub where_any: bool,
}

impl Column {
    pub(crate) const fn number(title: &'static str) -> Column {
        Column { title, is_number: true, where_any: false }
    }

    pub(crate) const fn text(title: &'static str) -> Column {
        Column { title, is_number: false, where_any: false }
    }

    pub(crate) const fn where_any(self) -> Column {
        Column { where_any: true, ..self }
    }
}

/// Numbers stand at the right of their column, text at its left. What is in it may come from anywhere.
pub(crate) struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(columns: [Column; N]) -> Table<N> {
        Table { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| plain(&cut(&cell, CELL_LETTERS_MAX)).into_owned()));
    }

    pub(crate) fn text(&self) -> String {
        let titles = || self.columns.each_ref().map(|column| column.title.to_string());
        let mut widths = titles().map(|title| title.width());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let mut text = String::new();
        let is_empty = |at: usize| {
            self.columns[at].where_any && self.rows.iter().all(|row| row[at].is_empty())
        };
        let left_out: [bool; N] = std::array::from_fn(is_empty);
        for row in std::iter::once(&titles()).chain(&self.rows) {
            let mut line = String::new();
            let cells = self.columns.iter().zip(row).zip(widths).zip(left_out);
            for ((column, cell), width) in cells.filter(|it| !it.1).map(|it| it.0) {
                let gap = if line.is_empty() { 0 } else { GAP };
                // Of our own: the width of `format!` has its limits.
                let missing = width - cell.width();
                let (before, after) = if column.is_number { (missing, 0) } else { (0, missing) };
                line.extend(std::iter::repeat_n(' ', gap + before));
                line += cell;
                line.extend(std::iter::repeat_n(' ', after));
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_too_long_or_does_anything() {
        let mut table = Table::new([Column::text("A"), Column::number("B"), Column::text("C")]);
        table.row(["a\u{1b}[2J".into(), "1".into(), "c\n".into()]);
        for length in [65_534, 65_535, 65_536, 1 << 20] {
            table.row(["x".repeat(length), "y".repeat(length), "z".repeat(length)]);
        }
        let text = table.text();
        assert_eq!(text.lines().count(), 6);
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("a?[2J  ")), "{text:.99}");
        assert!(text.lines().all(|line| line.chars().count() <= 3 * (CELL_LETTERS_MAX + 3 + GAP)));
    }

    /// Letters of some languages take two places, and others none.
    #[test]
    fn columns_stand_below_each_other() {
        let mut table = Table::new([Column::text("A"), Column::text("B")]);
        table.row(["訓練.py".into(), "x".into()]);
        table.row(["e\u{301}tude".into(), "y".into()]);
        assert_eq!(table.text(), "A        B\n訓練.py  x\ne\u{301}tude    y\n");
    }
}
