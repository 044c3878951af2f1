//! Draws the state into the cells of a terminal of any size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::super::gpus::Named;
use super::palette::Palette;
use super::state::State;
use super::{grid, watched};
use crate::show;

pub(super) fn draw(frame: &mut Frame, state: &mut State, palette: Palette) {
    let area = frame.area();
    // Columns do not depend on the height, so those that do not fit are known before drawing.
    let gone = match state.watched.is_some() {
        false => grid::gone_of_processes(state, area.width),
        true => grid::gone_of_sites(state, area.width),
    };
    let about = match &state.trouble {
        Some(trouble) => wrapped(trouble.split(' '), area.width),
        None if gone.is_empty() => vec![String::new()],
        None => missing(&gone, area),
    };
    let gpus = gpus(&state.gpus, usize::from(area.height / GPUS_SHARE));
    let [head, above, body, foot, last] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(gpus.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(about.len() as u16),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(title(state)).style(palette.title()), head);
    frame.render_widget(Paragraph::new(gpus), above);
    match state.watched.is_some() {
        _ if state.shows_help => frame.render_widget(Paragraph::new(HELP), body),
        false => processes(frame, body, state, palette),
        true => watched::draw(frame, body, state, palette),
    }
    let about: Vec<Text> = about.into_iter().map(Text::raw).collect();
    frame.render_widget(Paragraph::new(about).style(palette.warning()), foot);
    frame.render_widget(Paragraph::new(keys(state, palette)), last);
}

/// Text of the help; any key closes it.
const HELP: &str = "\
up, down, j, k            choose a line
PgUp, PgDn, Home, End
Enter, Esc                show a program's call sites and stacks, and return
left, right               scroll the stack
s, S                      sort by the next column, or the previous one
r                         reverse the order
/                         filter by text; Enter keeps the filter, Esc clears it
?, h, F1                  show this help
q, Ctrl-C                 quit

ALLOCATED, PEAK           memory that the program holds, and its maximum
RESERVED                  memory of the device that the cache holds
HITS                      requests served without the driver
WAITS/S                   waits that the library inserted";

/// Names the columns that do not fit, or counts them if their names would take too many lines.
fn missing(gone: &[&str], area: Rect) -> Vec<String> {
    let titles = gone.join(",\n");
    let lines = wrapped(["no room:"].into_iter().chain(titles.lines()), area.width);
    match lines.len() <= usize::from(area.height / GONE_SHARE).max(1) {
        true => lines,
        false => {
            let count = format!("no room: {}", show::plural(gone.len() as u64, "column"));
            wrapped(count.split(' '), area.width)
        }
    }
}

/// The columns that do not fit take at most one in this many lines of the screen.
const GONE_SHARE: u16 = 4;

/// The GPUs take at most one in this many lines of the screen.
const GPUS_SHARE: u16 = 4;

/// Returns one line for each GPU, up to `most`.
fn gpus(gpus: &[Named], most: usize) -> Vec<Text<'static>> {
    let line = |gpu: &Named| {
        let total = gpu.total_bytes.map(show::bytes);
        let mut parts = vec![format!("GPU {}", gpu.name)];
        if let (Some(free), Some(total)) = (gpu.free_bytes, gpu.total_bytes) {
            parts.push(bar(total.saturating_sub(free), total));
        }
        parts.extend(match (gpu.free_bytes.map(show::bytes), total) {
            (Some(free), Some(total)) => Some(format!("{free} free of {total}")),
            (_, total) => total,
        });
        parts.extend(gpu.pci.iter().chain(&gpu.uuid).cloned());
        Text::raw(cachealloc_text::plain(&parts.join("  ")).into_owned())
    };
    let shown = if gpus.len() <= most { gpus.len() } else { most.saturating_sub(1) };
    let mut lines: Vec<Text> = gpus.iter().take(shown).map(line).collect();
    if shown < gpus.len() && most > 0 {
        lines.push(Text::raw(format!(
            "and {}",
            show::plural((gpus.len() - shown) as u64, "more GPU")
        )));
    }
    lines
}

/// Returns a bar that shows how much of a device is in use.
fn bar(used: u64, total: u64) -> String {
    let full = (BAR_WIDTH as u128 * u128::from(used)).div_ceil(u128::from(total.max(1)));
    let full = usize::try_from(full).unwrap_or(BAR_WIDTH).min(BAR_WIDTH);
    format!("[{}{}]", "|".repeat(full), " ".repeat(BAR_WIDTH - full))
}

const BAR_WIDTH: usize = 20;

/// Wraps words into lines of this width.
fn wrapped<'a>(words: impl Iterator<Item = &'a str>, width: u16) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= usize::from(width) {
            *line += " ";
            *line += word;
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}

fn title(state: &State) -> String {
    let shown = match &state.watched {
        None => show::plural(state.processes.shown.len() as u64, "line"),
        Some(watched) => {
            let command = watched.sample.as_ref().map_or("", |sample| sample.command.as_str());
            cachealloc_text::plain(&format!("process {} {command}", watched.process.0)).into_owned()
        }
    };
    match state.filter() {
        "" => format!("cachealloc top  {shown}"),
        filter => format!("cachealloc top  {shown}  with \"{filter}\""),
    }
}

fn keys(state: &State, palette: Palette) -> Text<'static> {
    if state.writes_filter {
        return Text::from(vec![
            Span::styled("/", palette.heading()),
            Span::raw(cachealloc_text::plain(state.filter()).into_owned()),
            Span::styled("_  Enter keeps it, Esc clears it", palette.aside()),
        ]);
    }
    let inner = match state.watched {
        None => "Enter call sites",
        Some(_) => "Esc back  left, right stack",
    };
    let text = format!("q quit  ? help  {inner}  s, S sort  r reverse  / filter");
    Text::styled(text, palette.aside())
}

fn processes(frame: &mut Frame, area: Rect, state: &mut State, palette: Palette) {
    if state.processes.shown.is_empty() && state.processes.filter.is_empty() {
        frame.render_widget(Paragraph::new(state.nothing).wrap(Wrap { trim: true }), area);
        return;
    }
    grid::processes(frame, area, state, palette);
}
