//! Which lines of a table are shown, in which order, and which of them is chosen.

use ratatui::widgets::TableState;

use super::super::lines::{About, Line};

pub(super) struct Browser<const N: usize> {
    /// The column by which it is sorted.
    pub sort: usize,
    pub reversed: bool,
    pub filter: String,
    /// The most lines.
    pub most: usize,
    /// What is shown, in order.
    pub shown: Vec<Line<N>>,
    /// From which line on, and which one is chosen.
    pub table: TableState,
    all: Vec<Line<N>>,
    chosen: Option<About>,
}

impl<const N: usize> Browser<N> {
    pub(super) fn sorted_by(sort: usize, most: usize) -> Browser<N> {
        Browser {
            sort,
            reversed: false,
            filter: String::new(),
            most,
            shown: Vec::new(),
            table: TableState::new(),
            all: Vec::new(),
            chosen: None,
        }
    }

    /// Other lines. What is chosen stays so where it is still there; else what came into its place
    /// is.
    pub(super) fn take(&mut self, lines: Vec<Line<N>>) {
        self.all = lines;
        self.arrange();
    }

    /// Call when the order or the filter has changed.
    pub(super) fn arrange(&mut self) {
        let wanted = self.filter.to_lowercase();
        let matches = |line: &&Line<N>| {
            line.values.iter().any(|value| value.text.to_lowercase().contains(&wanted))
        };
        self.shown = self.all.iter().filter(matches).cloned().collect();
        let key = |line: &Line<N>| line.values[self.sort].key.clone();
        // Lines that are equal stay in the order in which they came.
        self.shown.sort_by(|a, b| key(a).compare(&key(b), self.reversed));
        self.shown.truncate(self.most);
        let again = self.shown.iter().position(|line| Some(&line.about) == self.chosen.as_ref());
        self.choose(again.or(self.table.selected()).unwrap_or(0));
    }

    /// The line at this place, or the last one.
    pub(super) fn choose(&mut self, at: usize) {
        let at = at.min(self.shown.len().saturating_sub(1));
        self.table.select((!self.shown.is_empty()).then_some(at));
        if let Some(line) = self.chosen() {
            self.chosen = Some(line.about.clone());
        }
    }

    pub(super) fn step(&mut self, by: isize) {
        self.choose(self.table.selected().unwrap_or(0).saturating_add_signed(by));
    }

    pub(super) fn chosen(&self) -> Option<&Line<N>> {
        self.shown.get(self.table.selected()?)
    }

    pub(super) fn sort_by_next(&mut self, forwards: bool) {
        self.sort = (self.sort + if forwards { 1 } else { N - 1 }) % N;
        self.reversed = false;
        self.arrange();
    }
}
