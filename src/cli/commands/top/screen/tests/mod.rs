//! Tests keys on a state, and draws states into the buffer of a simulated terminal.

mod drawing;
mod keys;

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::super::samples::{Look, Sample};
use super::draw;
use super::palette::Palette;
use super::state::{Effect, State};
use crate::live;
use crate::processes::Process;

const MIB: u64 = 1 << 20;

/// Returns a sample of a process on one device, `second` seconds after the first look.
fn sample(process: u32, second: u64, mib: u64, sites: &str) -> Sample {
    let allocated = mib * MIB;
    let libraries = if sites == "null" { "null" } else { "[]" };
    let json = format!(
        r#"{{"cachealloc": "0.1.0", "free_mode": "ordered", "allocations_served": {served},
        "hits": {served}, "barriers": 0, "driver_calls": {{}}, "counts": {{}},
        "waits": {{"at the end": {{"count": {second}, "nanoseconds": 5}}}},
        "devices": {{"0": {{"allocated_bytes.all.current": {allocated},
            "allocated_bytes.all.peak": {allocated}, "reserved_bytes.all.current": {allocated},
            "allocation.all.current": 7}}}},
        "libraries": {libraries}, "call_sites": {sites}, "recording": null, "limits": [],
        "snapshots": {{"signal": 10, "written": 0, "failed": 0, "last": null, "last_problem": null}},
        "trims": {{"asked": 0, "done": 0, "bytes": 0}}}}"#,
        served = 2000 * second
    );
    Sample {
        title: format!("./app{process} --some argument"),
        process: Process(process),
        user: nix::unistd::geteuid().as_raw(),
        command: format!("./app{process} --some argument"),
        time: begin() + Duration::from_secs(second),
        statistics: live::parse(&json).expect("statistics"),
        json,
    }
}

/// Start time, the same in all tests of a process.
fn begin() -> Instant {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGIN.get_or_init(Instant::now)
}

const SITES: &str = r#"[
    {"device": 0, "library": "app", "bytes": 1048576, "bytes_at_peak": 2097152, "blocks": 1,
     "allocations": 10, "frames": [
        {"name": "small_one", "filename": "a.c", "line": 7}, {"name": "main", "filename": "a.c", "line": 99}]},
    {"device": 0, "library": "libfoo.so", "bytes": 3145728, "bytes_at_peak": 3145728, "blocks": 3,
     "allocations": 5, "frames": [
        {"name": "large_one", "filename": "/long/path/b.c", "line": 8},
        {"name": "middle", "filename": "b.c", "line": 9}, {"name": "main", "filename": "a.c", "line": 50}]}]"#;

/// Returns a look with three processes, the second of which holds most.
fn look(second: u64) -> Look {
    let samples = vec![
        sample(100, second, 10, "null"),
        sample(200, second, 30, SITES),
        sample(300, second, 10 * second, "null"),
    ];
    Look { samples, ..Look::default() }
}

fn state() -> State {
    let mut state = State::new(None, usize::MAX);
    state.take(look(1));
    state.take(look(2));
    state
}

fn press(state: &mut State, code: KeyCode) -> Effect {
    state.key(KeyEvent::from(code))
}

fn write(state: &mut State, text: &str) {
    text.chars().for_each(|letter| _ = press(state, KeyCode::Char(letter)));
}

/// Returns the processes shown, in order.
fn shown(state: &State) -> Vec<&str> {
    state.processes.shown.iter().map(|line| line.values[0].text.as_str()).collect()
}

fn chosen(state: &State) -> &str {
    state.processes.chosen().map_or("", |line| &line.values[0].text)
}

fn drawn_by(state: &mut State, width: u16, height: u16, palette: Palette) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is memory");
    terminal.draw(|frame| draw::draw(frame, state, palette)).expect("it is memory");
    terminal.backend().buffer().clone()
}

/// Returns the lines of a terminal of this size, without trailing spaces.
fn drawn(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let buffer = drawn_by(state, width, height, Palette { has_colors: true });
    let line = |y: u16| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_string()
    };
    (0..height).map(line).collect()
}
