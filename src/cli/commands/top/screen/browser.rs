//! Selects which lines of a table are shown, their order, and which of them is chosen.

use ratatui::widgets::TableState;

use super::super::lines::{About, Line};

pub(super) struct Browser<const N: usize> {
    /// Column to sort by.
    pub sort: usize,
    pub reversed: bool,
    pub filter: String,
    /// Maximum number of lines.
    pub most: usize,
    /// Lines shown, in order.
    pub shown: Vec<Line<N>>,
    /// First visible line, and the chosen one.
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

    /// Replaces the lines. The chosen line stays chosen if it still exists; otherwise the line now
    /// at its place is chosen.
    pub(super) fn take(&mut self, lines: Vec<Line<N>>) {
        self.all = lines;
        self.arrange();
    }

    /// Filters and sorts the lines. Call after the order or the filter has changed.
    pub(super) fn arrange(&mut self) {
        let wanted = self.filter.to_lowercase();
        let matches = |line: &&Line<N>| {
            line.values.iter().any(|value| value.text.to_lowercase().contains(&wanted))
        };
        self.shown = self.all.iter().filter(matches).cloned().collect();
        let key = |line: &Line<N>| line.values[self.sort].key.clone();
        // The sort is stable: equal lines keep their order.
        self.shown.sort_by(|a, b| key(a).compare(&key(b), self.reversed));
        self.shown.truncate(self.most);
        let again = self.shown.iter().position(|line| Some(&line.about) == self.chosen.as_ref());
        self.choose(again.or(self.table.selected()).unwrap_or(0));
    }

    /// Chooses the line at this place, or the last one if there are fewer.
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
