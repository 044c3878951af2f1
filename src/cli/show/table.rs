//! Columns of text.

use std::fmt::Write as _;

use cachealloc_text::{cut, plain};

const GAP: usize = 2;
/// What is longer is cut: a table is for eyes, and one hostile name must not push all others out of sight.
const CELL_LETTERS_MAX: usize = 1000;

pub(crate) struct Column {
    title: &'static str,
    is_number: bool,
}

impl Column {
    pub(crate) const fn number(title: &'static str) -> Column {
        Column { title, is_number: true }
    }

    pub(crate) const fn text(title: &'static str) -> Column {
        Column { title, is_number: false }
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
        let mut widths = titles().map(|title| title.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in std::iter::once(&titles()).chain(&self.rows) {
            let mut line = String::new();
            for ((column, cell), width) in self.columns.iter().zip(row).zip(widths) {
                let gap = if line.is_empty() { 0 } else { GAP };
                // Of our own: the width of `format!` has its limits.
                let missing = width - cell.chars().count();
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
}
