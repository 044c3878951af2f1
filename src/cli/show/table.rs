//! Formats columns of text.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};

use cachealloc_text::{cut, plain};
use ratatui::crossterm::terminal;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Spaces between columns.
const GAP: usize = 2;
/// Longer cells are cut: a table is for eyes, and one hostile name must not push all others out of
/// sight.
const CELL_LETTERS_MAX: usize = 1000;
/// Gaps between columns, and the width below which no column of text is cut: first for any
/// terminal, then for one that is too narrow for that.
const NARROW: [(usize, usize); 2] = [(GAP, 12), (1, 6)];
/// Width of a column of text below which other columns are dropped for it.
const TEXT_WANTED: usize = 24;

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
    go: &'static [&'static str],
    /// The last column has sentences: it is wrapped, not cut.
    wraps: bool,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(columns: [Column; N]) -> Table<N> {
        Table { columns, rows: Vec::new(), go: &[], wraps: false }
    }

    /// Drops columns with these titles on a narrow terminal, in this order, except the last column.
    pub(crate) fn dropping(self, go: &'static [&'static str]) -> Table<N> {
        Table { go, ..self }
    }

    /// Wraps the last column on a narrow terminal instead of cutting it.
    pub(crate) fn wrapping(self) -> Table<N> {
        Table { wraps: true, ..self }
    }

    pub(crate) fn row(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| plain(&cut(&cell, CELL_LETTERS_MAX)).into_owned()));
    }

    /// Returns the text for stdout: as wide as its terminal and with highlighted titles, or uncut
    /// and plain if stdout is not a terminal.
    pub(crate) fn text(&self) -> String {
        self.within(terminal_width(), stdout().is_terminal() && has_colors())
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
        let empty: [bool; N] = std::array::from_fn(is_empty);
        let mut left_out = empty;
        let mut gap_width = GAP;
        let mut dropped = Vec::new();
        if let Some(width_max) = width_max {
            dropped = self.drop_columns(&widths, &mut left_out, width_max);
            let mut narrow =
                NARROW.into_iter().filter(|&it| self.narrow(&mut widths, &left_out, width_max, it));
            match narrow.next() {
                Some((gap, _)) => gap_width = gap,
                None => return self.as_lists(&empty, width_max, stands_out),
            }
        }
        for (index, row) in std::iter::once(&titles()).chain(&self.rows).enumerate() {
            let (mut line, mut rest) = (String::new(), Vec::new());
            let cells = self.columns.iter().zip(row).zip(widths).zip(left_out).enumerate();
            for (at, ((column, cell), width)) in cells.filter(|it| !it.1.1).map(|it| (it.0, it.1.0))
            {
                let cell = &match self.wraps && at + 1 == N {
                    true => {
                        let cut = |line: String| cut_middle(&line, width);
                        rest = wrapped(cell, width).into_iter().map(cut).collect();
                        rest.remove(0)
                    }
                    false => cut_middle(cell, width),
                };
                let gap = if line.is_empty() { 0 } else { gap_width };
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
            let shown = || (0..N - 1).filter(|&at| !left_out[at]);
            let before = shown().map(|at| widths[at] + gap_width).sum();
            rest.iter().for_each(|line| _ = writeln!(text, "{}{line}", " ".repeat(before)));
        }
        if !dropped.is_empty() {
            let _ = writeln!(text, "no room: {}", dropped.join(", "));
        }
        text
    }

    /// Leaves out columns until each column of text has the width that it wants. Returns their
    /// titles.
    fn drop_columns(
        &self,
        widths: &[usize; N],
        left_out: &mut [bool; N],
        width_max: usize,
    ) -> Vec<&'static str> {
        let wanted = |at: usize| match self.columns[at].is_number {
            true => widths[at],
            false => widths[at].min(TEXT_WANTED),
        };
        let mut dropped = Vec::new();
        for title in self.go {
            let shown = || (0..N).filter(|&at| !left_out[at]);
            let gaps = GAP * shown().count().saturating_sub(1);
            if gaps + shown().map(wanted).sum::<usize>() <= width_max {
                break;
            }
            let column = shown().find(|&at| self.columns[at].title == *title && at + 1 < N);
            if let Some(at) = column {
                left_out[at] = true;
                dropped.push(*title);
            }
        }
        dropped
    }

    /// Returns each row as a list with one line per cell, for a terminal that is too narrow for
    /// the columns side by side.
    fn as_lists(&self, left_out: &[bool; N], width_max: usize, stands_out: bool) -> String {
        let shown = || (0..N).filter(|&at| !left_out[at]);
        let titles = shown().map(|at| self.columns[at].title.width()).max().unwrap_or(0);
        let room = width_max.saturating_sub(titles + GAP).max(1);
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            text += if number > 0 { "\n" } else { "" };
            for at in shown().filter(|&at| !row[at].is_empty()) {
                let (title, cell) = (self.columns[at].title, cut_middle(&row[at], room));
                let gap = " ".repeat(titles - title.width() + GAP);
                let _ = match stands_out {
                    true => writeln!(text, "\u{1b}[1m{title}\u{1b}[0m{gap}{cell}"),
                    false => writeln!(text, "{title}{gap}{cell}"),
                };
            }
        }
        text
    }

    /// Takes the excess width from the widest columns of text. Returns whether the table then fits.
    fn narrow(
        &self,
        widths: &mut [usize; N],
        left_out: &[bool; N],
        width_max: usize,
        (gap, text_min): (usize, usize),
    ) -> bool {
        let shown = || (0..N).filter(|&at| !left_out[at]);
        let gaps = gap * shown().count().saturating_sub(1);
        loop {
            let all = gaps + shown().map(|at| widths[at]).sum::<usize>();
            let texts = shown().filter(|&at| !self.columns[at].is_number);
            let widest = texts.max_by_key(|&at| widths[at]);
            if all <= width_max {
                return true;
            }
            let Some(widest) = widest.filter(|&at| widths[at] > text_min) else {
                return false;
            };
            widths[widest] = widths[widest].saturating_sub(all - width_max).max(text_min);
        }
    }
}

/// Returns whether colors may be used, by the convention of https://no-color.org.
pub(crate) fn has_colors() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns the width of the terminal that is stdout, if it is one that knows its width.
fn terminal_width() -> Option<usize> {
    let width = terminal::size().ok().map(|(width, _)| usize::from(width));
    width.filter(|&width| width > 0 && stdout().is_terminal())
}

/// Wraps the lines of a text that are wider than the terminal, which would break words. Tables are
/// not wider.
pub(crate) fn wrapped_for_terminal(text: &str) -> Cow<'_, str> {
    terminal_width().map_or(text.into(), |width| wrapped_within(text, width).into())
}

/// A line is continued below its last column that begins in the first half, or below its
/// indentation.
fn wrapped_within(text: &str, width: usize) -> String {
    let mut all = String::new();
    for line in text.lines() {
        let gaps = line.match_indices("  ").map(|(at, gap)| at + gap.len());
        let gaps = gaps.take_while(|&end| 2 * line[..end].width() <= width);
        let gap = gaps.last().unwrap_or(0);
        let (begin, rest) = line.split_at(line.len() - line[gap..].trim_start_matches(' ').len());
        let lines = match line.width() <= width || line.contains('\u{1b}') {
            true => vec![rest.to_string()],
            false => wrapped(rest, width.saturating_sub(begin.width())),
        };
        let _ = writeln!(all, "{begin}{}", lines[0]);
        let below = " ".repeat(begin.width());
        lines[1..].iter().for_each(|line| _ = writeln!(all, "{below}{line}"));
    }
    all
}

/// Wraps text between its words into lines of this width, at least one. A longer word is a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        match lines[last].is_empty() {
            false if lines[last].width() + 1 + word.width() > width => lines.push(word.to_string()),
            false => lines[last] += &format!(" {word}"),
            true => lines[last] = word.to_string(),
        }
    }
    lines
}

/// Separator between a call and its caller.
const CALLED_BY: &str = " < ";

/// Cuts text to `width`. A chain of calls loses its outermost calls first, then the places: the
/// functions of two calls say more than the place of one. Anything else is cut in the middle: the
/// beginning and the end are the most informative.
pub(crate) fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let room = width.saturating_sub(1);
    let ends: Vec<usize> = text.match_indices(CALLED_BY).map(|(end, _)| end).collect();
    for &end in ends.iter().skip(1).rev() {
        let shorter = format!("{}{CALLED_BY}\u{2026}", &text[..end]);
        if shorter.width() <= width {
            return shorter;
        }
    }
    let calls: Vec<&str> = text.split(CALLED_BY).collect();
    let text = ends.get(1).map_or(text, |&end| &text[..end]);
    if text.width() <= room {
        return format!("{text}\u{2026}");
    }
    let functions: Vec<&str> = calls.iter().map(|call| function_of(call)).collect();
    if let [function, _, ..] = functions[..] {
        let caller = format!("{function}{CALLED_BY}{}", calls[1]);
        let first = |count: usize| functions[..count].join(CALLED_BY);
        let shorter = (2..=calls.len()).rev().map(|count| (first(count), count));
        for (shorter, count) in std::iter::once((caller, 2)).chain(shorter) {
            let shorter = shorter + if count < calls.len() { "\u{2026}" } else { "" };
            if shorter.width() <= width {
                return shorter;
            }
        }
    }
    let innermost = ends.first().map_or("", |&end| &text[..end]);
    if innermost.width() > room {
        return cut_middle(innermost, width);
    }
    let caller_room = room - innermost.width();
    let keeps_innermost = caller_room * 5 > room;
    let begin_room = if keeps_innermost { innermost.width() } else { 0 }.max(room.div_ceil(2));
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
    let begin = fitting(&mut text.chars(), begin_room);
    let end = fitting(&mut text.chars().rev(), room - begin_room);
    format!("{begin}\u{2026}{}", end.chars().rev().collect::<String>())
}

/// Returns a call without its place: a line of a file, or an offset.
fn function_of(call: &str) -> &str {
    let is_place = |place: &str| {
        let line = place.rsplit_once(':').map(|(_, line)| line);
        place.starts_with("+0x") || line.is_some_and(|line| line.parse::<u32>().is_ok())
    };
    call.rsplit_once(' ')
        .filter(|(_, place)| is_place(place))
        .map_or(call, |(function, _)| function)
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
        assert!(text.contains("    1  get < leak c/planted.c:22\u{2026}\n"), "{text}");
        let chain = "get c/a.c:12 < leak c/a.c:22 < main c/a.c:41 < start c/a.c:50";
        for (width, wanted) in [
            (60, "get c/a.c:12 < leak c/a.c:22 < main c/a.c:41 < \u{2026}"),
            (40, "get c/a.c:12 < leak c/a.c:22 < \u{2026}"),
            (30, "get c/a.c:12 < leak c/a.c:22\u{2026}"),
            (24, "get < leak c/a.c:22\u{2026}"),
            (19, "get < leak < main\u{2026}"),
            (15, "get < leak\u{2026}"),
            (9, "get \u{2026}c:12"),
        ] {
            assert_eq!(cut_middle(chain, width), wanted, "{width}");
        }
        assert_eq!(table.within(None, false), table.within(Some(200), false));
        for (text, width, wanted) in [
            ("alloc+0x10 a:b +0x40 < serve x.py:7", 29, "alloc+0x10 a:b < serve x.py:7"),
            ("operator new(int) < build s.cc:7", 25, "operator new(int) < build"),
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "ab\u{2026}ef"),
            ("\u{8a13}\u{7df4}.py", 5, "\u{8a13}\u{2026}py"),
            ("abc", 0, "\u{2026}"),
        ] {
            assert_eq!(cut_middle(text, width), wanted);
        }
    }

    #[test]
    fn a_terminal_too_narrow_for_columns_shows_lists() {
        let columns = [Column::number("BYTES"), Column::number("BLOCKS"), Column::text("WHERE")];
        let mut table = Table::new(columns);
        table.row(["192 MiB".into(), "12".into(), "train_step user/train.py:95".into()]);
        table.row(["64.0 MiB".into(), "3".into(), String::new()]);
        let wanted = "BYTES   192 MiB\nBLOCKS  12\nWHERE   train_….py:95\n\n\
                      BYTES   64.0 MiB\nBLOCKS  3\n";
        assert_eq!(table.within(Some(21), false), wanted);
        assert!(table.within(Some(34), false).starts_with("   BYTES  BLOCKS  WHERE\n"));
        assert!(table.within(Some(22), false).contains("\n 192 MiB     12 tra…95\n"));
        assert!(table.within(Some(1), true).contains("\u{1b}[1mWHERE\u{1b}[0m   …\n"));
    }

    #[test]
    fn a_narrow_terminal_drops_columns_for_the_text() {
        let columns = ["BYTES", "PEAK", "BLOCKS"].map(Column::number);
        let [bytes, peak, blocks] = columns;
        let mut table = Table::new([bytes, peak, blocks, Column::text("COMMAND")])
            .dropping(&["BLOCKS", "PEAK", "COMMAND"]);
        let command = "./simulate --input mesh.h5";
        table.row(["192 MiB".into(), "1.00 GiB".into(), "12".into(), command.into()]);
        for (width, shown, said) in [
            (80, "BYTES      PEAK  BLOCKS  COMMAND", ""),
            (50, "BYTES      PEAK  COMMAND", "no room: BLOCKS"),
            (40, "BYTES  COMMAND", "no room: BLOCKS, PEAK"),
            (20, "BYTES COMMAND", "no room: BLOCKS, PEAK"),
        ] {
            let text = table.within(Some(width), false);
            let mut lines = text.lines();
            assert_eq!(lines.next().map(str::trim), Some(shown), "{width}: {text}");
            assert_eq!(lines.nth(1).unwrap_or_default(), said, "{width}: {text}");
        }
        assert!(table.within(None, false).contains("BLOCKS"));
    }

    #[test]
    fn sentences_are_wrapped_on_a_narrow_terminal() {
        let columns = [Column::number("BYTES"), Column::text("BY"), Column::text("MEMORY")];
        let mut table = Table::new(columns).wrapping();
        let memory = "first context, if other processes have not changed";
        table.row(["4.00 MiB".into(), "difference".into(), memory.into()]);
        let wanted = "   BYTES  BY          MEMORY\n4.00 MiB  difference  first context, if\n                      \
                      other processes\n                      have not changed\n";
        assert_eq!(table.within(Some(40), false), wanted);
        assert!(table.within(Some(80), false).ends_with(&format!("  {memory}\n")));
        assert_eq!(wrapped("a verylongword b", 5), ["a", "verylongword", "b"]);
        assert_eq!(wrapped("", 5), [""]);
        table.row(["0 B".into(), "x".into(), "z".repeat(30)]);
        assert!(table.within(Some(40), false).lines().all(|line| line.width() <= 40));
        // Other lines break no word either.
        let text = "device 0: 12 allocations\n\nNO    driver   libcuda.so.1: cannot open the file\n    \
                    let segments grow in place and release memory\n/a/very/long/path/that/is/one/word\n";
        let wanted = "device 0: 12 allocations\n\nNO    driver   libcuda.so.1:\n               cannot open the\n\
                      \x20              file\n    let segments grow in place\n    and release memory\n\
                      /a/very/long/path/that/is/one/word\n";
        assert_eq!(wrapped_within(text, 30), wanted);
        assert_eq!(wrapped_within(wanted, 80), wanted);
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
