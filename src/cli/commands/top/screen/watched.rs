//! Draws one process: its numbers, the memory it held over time, its call sites, and the stack of
//! the chosen one.

use cachealloc_text::{bytes, plain};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line as Text;
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline, TableState, Wrap};

use super::super::lines::About;
use super::columns::fit;
use super::grid;
use super::palette::Palette;
use super::state::{State, Watched};

/// Maximum number of device lines shown for a process, above its memory over time.
const DEVICES_MOST: u16 = 4;
const BARS_HEIGHT: u16 = 3;
/// The order in which columns of its numbers are dropped. What stays must fit: of a number that is
/// cut, the first digits are missing.
const NUMBERS_GO: [&str; 8] =
    ["WAITS/S", "HITS", "BLOCKS", "ALLOC/S", "PEAK", "RESERVED", "GPU", "PID"];
/// On lower screens only the call sites are drawn.
const HEIGHT_FOR_ALL: u16 = 16;

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &mut State, palette: Palette) {
    let Some(watched) = &state.watched else { return };
    let process = watched.process;
    let is_own = |about: &About| matches!(about, About::Process(own, _) if *own == process);
    let devices = state.processes.shown.iter().filter(|line| is_own(&line.about)).count() as u16;
    let has_room = area.height >= HEIGHT_FOR_ALL;
    let heights = match has_room {
        true => [1 + devices.min(DEVICES_MOST), BARS_HEIGHT],
        false => [0, 0],
    };
    let [said, numbers, over_time, list, stack] = Layout::vertical([
        Constraint::Length(u16::from(said_of(watched).is_some())),
        Constraint::Length(heights[0]),
        Constraint::Length(heights[1]),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    if let Some(text) = said_of(watched) {
        frame.render_widget(Paragraph::new(text).style(palette.warning()), said);
    }
    if has_room {
        draw_numbers(frame, numbers, state, &is_own, palette);
        draw_over_time(frame, over_time, state, &is_own, palette);
    }
    if let Some(why) = why_no_sites(state) {
        frame.render_widget(Paragraph::new(why).wrap(Wrap { trim: true }), list);
        return;
    }
    grid::sites(frame, list, state, palette);
    draw_stack(frame, stack, state, palette);
}

fn said_of(watched: &Watched) -> Option<String> {
    let process = watched.process.0;
    watched.has_ended.then(|| format!("process {process} has ended; these are its last numbers"))
}

fn why_no_sites(state: &State) -> Option<String> {
    let watched = state.watched.as_ref()?;
    let process = watched.process.0;
    match &watched.sample {
        None if watched.has_ended => Some(String::new()),
        None => Some("waiting for call sites".to_string()),
        Some(sample) if sample.statistics.call_sites.is_none() => Some(format!(
            "nothing is recorded; start recording with: cachealloc record {process} on"
        )),
        Some(_) => None,
    }
}

/// Draws the lines of the process from the table of all processes.
fn draw_numbers(
    frame: &mut Frame,
    area: Rect,
    state: &State,
    is_own: &dyn Fn(&About) -> bool,
    palette: Palette,
) {
    let mut columns = grid::columns_of_processes(state);
    // The command is already in the title.
    columns.retain(|column| !["COMMAND", "OVER TIME"].contains(&column.title.as_str()));
    for column in &mut columns {
        let cells = std::mem::take(&mut column.cells).into_iter().zip(&state.processes.shown);
        let cells = cells.filter(|(_, line)| is_own(&line.about)).map(|(cell, _)| cell);
        column.cells = cells.collect();
    }
    let (columns, _) = fit(columns, &NUMBERS_GO, area.width);
    grid::table(frame, area, columns, &mut TableState::new(), palette);
}

/// Draws the memory held over time, summed over all devices of the process.
fn draw_over_time(
    frame: &mut Frame,
    area: Rect,
    state: &State,
    is_own: &dyn Fn(&About) -> bool,
    palette: Palette,
) {
    let mut sum = vec![0u64; usize::from(area.width)];
    let mut looks = 0;
    for line in state.processes.shown.iter().filter(|line| is_own(&line.about)) {
        let bytes = state.history.last(&line.about, sum.len());
        looks = looks.max(bytes.len());
        // Align at the end: the latest values of all devices are from the same look.
        for (sum, bytes) in sum.iter_mut().rev().zip(bytes.iter().rev()) {
            *sum = sum.saturating_add(*bytes);
        }
    }
    let sum = &sum[sum.len() - looks..];
    let most = sum.iter().copied().max().unwrap_or(0);
    let title = format!("allocated over time, at most {} ", bytes(most));
    let bars = Sparkline::default()
        .block(Block::new().borders(Borders::TOP).title(title))
        .data(sum)
        .style(palette.bars());
    frame.render_widget(bars, area);
}

fn draw_stack(frame: &mut Frame, area: Rect, state: &State, palette: Palette) {
    let (Some(site), Some(watched)) = (state.site(), &state.watched) else { return };
    let frames = &site.frames;
    let room = usize::from(area.height.saturating_sub(1));
    let first = watched.frame.min(frames.len().saturating_sub(room));
    let shown: Vec<Text> = frames[first..]
        .iter()
        .take(room)
        .map(|frame| Text::raw(plain(&frame.to_string()).into_owned()))
        .collect();
    let title = match (frames.is_empty(), shown.len() < frames.len()) {
        (true, _) => "no stack was recorded for the chosen call site ".to_string(),
        (_, false) => "stack of the chosen call site, innermost first ".to_string(),
        (_, true) => format!(
            "stack of the chosen call site, frames {} to {} of {} ",
            first + 1,
            first + shown.len(),
            frames.len()
        ),
    };
    let block = Block::new().borders(Borders::TOP).title(title).title_style(palette.heading());
    frame.render_widget(Paragraph::new(shown).block(block), area);
}
