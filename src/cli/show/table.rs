//! Columns of text.

const GAP: &str = "  ";

pub struct Column {
    title: &'static str,
    is_number: bool,
}

impl Column {
    pub const fn number(title: &'static str) -> Column {
        Column { title, is_number: true }
    }

    pub const fn text(title: &'static str) -> Column {
        Column { title, is_number: false }
    }
}

/// Numbers stand at the right of their column, text at its left.
pub struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(columns: [Column; N]) -> Table<N> {
        Table { columns, rows: Vec::new() }
    }

    pub fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    pub fn text(&self) -> String {
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
                let gap = if line.is_empty() { "" } else { GAP };
                line += &match column.is_number {
                    true => format!("{gap}{cell:>width$}"),
                    false => format!("{gap}{cell:<width$}"),
                };
            }
            text += line.trim_end();
            text += "\n";
        }
        text
    }
}
