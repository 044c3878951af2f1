//! The tables of the screen: their columns, and how they are drawn.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line as Text;
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::super::lines::{OVER_TIME, PROCESSES, PROCESSES_GO, SITES, SITES_GO};
use super::bars;
use super::browser::Browser;
use super::columns::{Column, GAP, fit};
use super::palette::Palette;
use super::state::State;
use crate::show;

const BARS: usize = 16;
/// Minimum width of the last column, a command or a call site.
const LAST_LEAST: u16 = 16;

/// Returns the titles of the columns that do not fit into this width.
pub(super) fn gone_of_processes(state: &State, width: u16) -> Vec<&'static str> {
    fit(columns_of_processes(state), &PROCESSES_GO, width).1
}

pub(super) fn gone_of_sites(state: &State, width: u16) -> Vec<&'static str> {
    fit(columns_of(&state.sites, &SITES), &SITES_GO, width).1
}

pub(super) fn processes(frame: &mut Frame, area: Rect, state: &mut State, palette: Palette) {
    state.page = usize::from(area.height.saturating_sub(1));
    let (columns, _) = fit(columns_of_processes(state), &PROCESSES_GO, area.width);
    table(frame, area, columns, &mut state.processes.table, palette);
}

/// Returns the columns of the process table, with the memory held over time before the command.
pub(super) fn columns_of_processes(state: &State) -> Vec<Column> {
    let browser = &state.processes;
    let mut columns = columns_of(browser, &PROCESSES);
    let shown = browser.shown.iter();
    let history = shown.map(|line| bars::text(&state.history.last(&line.about, BARS)));
    columns.insert(columns.len() - 1, Column::new(OVER_TIME, false, history.collect()));
    columns
}

/// Draws the call sites of the watched process.
pub(super) fn sites(frame: &mut Frame, area: Rect, state: &mut State, palette: Palette) {
    state.page = usize::from(area.height.saturating_sub(1));
    let (columns, _) = fit(columns_of(&state.sites, &SITES), &SITES_GO, area.width);
    table(frame, area, columns, &mut state.sites.table, palette);
}

fn columns_of<const N: usize>(browser: &Browser<N>, columns: &[show::Column; N]) -> Vec<Column> {
    let mut columns: Vec<Column> = columns
        .iter()
        .enumerate()
        .filter(|(at, column)| {
            let mut lines = browser.shown.iter();
            !column.where_any || lines.any(|line| !line.values[*at].text.is_empty())
        })
        .map(|(at, show::Column { title, is_number, .. })| {
            let mark = match (at == browser.sort, browser.reversed) {
                (false, _) => "",
                (true, false) => " v",
                (true, true) => " ^",
            };
            let cells = browser.shown.iter().map(|line| line.values[at].text.clone());
            Column::new(format!("{title}{mark}"), *is_number, cells.collect())
        })
        .collect();
    if let Some(last) = columns.last_mut() {
        last.least = Some(LAST_LEAST);
    }
    columns
}

pub(super) fn table(
    frame: &mut Frame,
    area: Rect,
    columns: Vec<Column>,
    state: &mut TableState,
    palette: Palette,
) {
    let widths: Vec<Constraint> = columns
        .iter()
        .map(|column| match column.least {
            Some(_) => Constraint::Fill(1),
            None => Constraint::Length(column.width()),
        })
        .collect();
    let gaps = GAP * columns.len().saturating_sub(1) as u16;
    let others = columns.iter().filter(|column| column.least.is_none());
    let left = area.width.saturating_sub(gaps + others.map(Column::width).sum::<u16>());
    let cell = |column: &Column, text: &str| {
        let text = match column.least {
            Some(_) => show::cut_middle(text, left.into()),
            None => text.to_string(),
        };
        let text = Text::raw(text);
        Cell::new(if column.is_number { text.right_aligned() } else { text })
    };
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let rows =
        (0..rows).map(|at| Row::new(columns.iter().map(|column| cell(column, &column.cells[at]))));
    let titles = Row::new(columns.iter().map(|column| cell(column, &column.title)));
    let table = Table::new(rows, widths)
        .column_spacing(GAP)
        .header(titles.style(palette.heading()))
        .row_highlight_style(palette.chosen());
    frame.render_stateful_widget(table, area, state);
}
