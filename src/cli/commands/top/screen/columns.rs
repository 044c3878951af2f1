//! Chooses the columns of a table that fit. The least important are dropped first.

use cachealloc_text::plain;
use unicode_width::UnicodeWidthStr;

/// Width between two columns.
pub(super) const GAP: u16 = 2;

/// A column with all its texts.
pub(super) struct Column {
    pub title: String,
    pub is_number: bool,
    pub cells: Vec<String>,
    /// Set for the last column, which takes the remaining width: the minimum that it needs.
    pub least: Option<u16>,
}

impl Column {
    /// Escapes the texts, which are untrusted.
    pub(super) fn new(title: impl Into<String>, is_number: bool, cells: Vec<String>) -> Column {
        let cells = cells.into_iter().map(|cell| plain(&cell).into_owned()).collect();
        Column { title: title.into(), is_number, cells, least: None }
    }

    /// Returns the width of the widest text on a terminal.
    pub(super) fn width(&self) -> u16 {
        let texts = self.cells.iter().chain([&self.title]);
        let width = texts.map(|text| text.width()).max().unwrap_or(0);
        u16::try_from(width).unwrap_or(u16::MAX)
    }

    fn needs(&self) -> u16 {
        self.least.map_or(self.width(), |least| self.width().min(least))
    }
}

/// Returns the columns that fit, and the titles of the others, which are dropped in the order of
/// `go`.
pub(super) fn fit(
    mut columns: Vec<Column>,
    go: &[&'static str],
    width: u16,
) -> (Vec<Column>, Vec<&'static str>) {
    let mut gone = Vec::new();
    for title in go {
        let needed: u32 = columns.iter().map(|column| u32::from(column.needs())).sum();
        let gaps = u32::from(GAP) * columns.len().saturating_sub(1) as u32;
        if needed + gaps <= u32::from(width) {
            break;
        }
        let before = columns.len();
        columns.retain(|column| !column.title.starts_with(title));
        if columns.len() < before {
            gone.push(*title);
        }
    }
    (columns, gone)
}
