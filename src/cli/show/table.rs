//! Formats columns of text.

use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};

use cachealloc_text::{cut, plain};
use ratatui::crossterm::terminal;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const GAP: usize = 2;
/// Longer cells are cut: a table is for eyes, and one hostile name must not push all others out of
/// sight.
const CELL_LETTERS_MAX: usize = 1000;
/// On a narrow terminal a column of text is cut, but not below this width.
const CUT_WIDTH_MIN: usize = 12;

#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub title: &'static str,
    pub is_number: bool,
    /// The column is omitted if all its cells are empty.
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

/// A table with numbers aligned right and text aligned left. Cells may contain untrusted text.
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

    /// Returns the text for stdout: as wide as its terminal and with highlighted titles, or uncut
    /// and plain if stdout is not a terminal.
    pub(crate) fn text(&self) -> String {
        if !stdout().is_terminal() {
            return self.within(None, false);
        }
        let width = terminal::size().ok().map(|(width, _)| usize::from(width));
        self.within(width.filter(|&width| width > 0), has_colors())
    }

    fn within(&self, width_max: Option<usize>, stands_out: bool) -> String {
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
        if let Some(width_max) = width_max {
            self.narrow(&mut widths, &left_out, width_max);
        }
        for (index, row) in std::iter::once(&titles()).chain(&self.rows).enumerate() {
            let mut line = String::new();
            let cells = self.columns.iter().zip(row).zip(widths).zip(left_out);
            for ((column, cell), width) in cells.filter(|it| !it.1).map(|it| it.0) {
                let cell = &cut_middle(cell, width);
                let gap = if line.is_empty() { 0 } else { GAP };
                // Padded by hand, because the width of `format!` is limited.
                let missing = width - cell.width();
                let (before, after) = if column.is_number { (missing, 0) } else { (0, missing) };
                line.extend(std::iter::repeat_n(' ', gap + before));
                line += cell;
                line.extend(std::iter::repeat_n(' ', after));
            }
            let line = line.trim_end();
            let _ = match index == 0 && stands_out {
                true => writeln!(text, "\u{1b}[1m{line}\u{1b}[0m"),
                false => writeln!(text, "{line}"),
            };
        }
        text
    }

    /// Takes the excess width from the widest columns of text.
    fn narrow(&self, widths: &mut [usize; N], left_out: &[bool; N], width_max: usize) {
        let shown = || (0..N).filter(|&at| !left_out[at]);
        let gaps = GAP * shown().count().saturating_sub(1);
        loop {
            let all = gaps + shown().map(|at| widths[at]).sum::<usize>();
            let texts = shown().filter(|&at| !self.columns[at].is_number);
            let widest = texts.max_by_key(|&at| widths[at]);
            let Some(widest) = widest.filter(|&at| widths[at] > CUT_WIDTH_MIN) else { return };
            if all <= width_max {
                return;
            }
            widths[widest] = widths[widest].saturating_sub(all - width_max).max(CUT_WIDTH_MIN);
        }
    }
}

/// Returns whether colors may be used, by the convention of https://no-color.org.
pub(crate) fn has_colors() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Cuts text in the middle to `width`: the beginning and the end of a call site are the most
/// informative.
pub(crate) fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let room = width.saturating_sub(1);
    let fitting = |letters: &mut dyn Iterator<Item = char>, room: usize| {
        let mut left = room;
        let fits = letters.take_while(|letter| {
            let needed = letter.width().unwrap_or(0);
            let fits = needed <= left;
            left = left.saturating_sub(needed);
            fits
        });
        fits.collect::<String>()
    };
    let begin = fitting(&mut text.chars(), room.div_ceil(2));
    let end = fitting(&mut text.chars().rev(), room / 2);
    format!("{begin}\u{2026}{}", end.chars().rev().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_cut_and_have_no_control_characters() {
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

    #[test]
    fn a_narrow_terminal_shows_begin_and_end() {
        let mut table = Table::new([Column::number("BYTES"), Column::text("WHERE")]);
        table.row([
            "1".into(),
            "get c/planted.c:12 < leak c/planted.c:22 < main c/planted.c:41".into(),
        ]);
        table.row(["22".into(), "short".into()]);
        for width in [40, 80, 200] {
            let text = table.within(Some(width), true);
            assert!(text.starts_with("\u{1b}[1mBYTES  WHERE\u{1b}[0m\n"), "{text:?}");
            assert!(text.lines().skip(1).all(|line| line.width() <= width), "{width}: {text}");
        }
        let text = table.within(Some(40), false);
        assert!(text.contains("    1  get c/planted.c:\u{2026}n c/planted.c:41\n"), "{text}");
        assert!(table.within(Some(1), false).lines().all(|line| line.width() <= 20));
        assert_eq!(table.within(None, false), table.within(Some(200), false));
        for (text, width, wanted) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "ab\u{2026}ef"),
            ("\u{8a13}\u{7df4}.py", 5, "\u{8a13}\u{2026}py"),
            ("abc", 0, "\u{2026}"),
        ] {
            assert_eq!(cut_middle(text, width), wanted);
        }
    }

    /// Letters of some scripts take two columns, and others none.
    #[test]
    fn columns_stand_below_each_other() {
        let mut table = Table::new([Column::text("A"), Column::text("B")]);
        table.row(["訓練.py".into(), "x".into()]);
        table.row(["e\u{301}tude".into(), "y".into()]);
        assert_eq!(table.text(), "A        B\n訓練.py  x\ne\u{301}tude    y\n");
    }
}
