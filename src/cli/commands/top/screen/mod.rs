//! The interactive screen: one thread draws it, and others deliver keys, signals and new samples of
//! the processes.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use cachealloc_text::plain;
use nix::sys::signal::{SigSet, Signal};
use ratatui::crossterm::event::{self, Event as Input, KeyEvent};

use super::super::Result;
use super::TIMEOUT;
use super::samples::{Asker, Look};
use crate::failure::Failure;
use crate::kernel;
use crate::processes::Process;

mod bars;
mod browser;
mod columns;
mod draw;
mod grid;
mod history;
mod palette;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod watched;

use palette::Palette;
use state::{Effect, State};
use terminal::Screen;

pub(super) use terminal::block_signals;

enum Event {
    Key(KeyEvent),
    /// Redraw only.
    Resize,
    /// No more keys will arrive.
    NoKeys(io::Error),
    Signal(Signal),
    News(Look),
    /// No new samples, for this reason.
    Trouble(String),
}

/// Runs the screen. `signals` must have been blocked by `block_signals`.
pub(super) fn run(
    mut asker: Asker,
    signals: SigSet,
    interval: Duration,
    rows: Option<usize>,
) -> Result {
    let mut state = State::new(asker.process, rows.unwrap_or(usize::MAX));
    // The first look at a named process happens before the screen opens, so that an error stays
    // readable afterwards.
    if asker.process.is_some() {
        state.take(asker.look(None, TIMEOUT)?);
    }
    let (sender, events) = channel();
    let (wishes, wished) = channel();
    let mut screen = Screen::begin()?;
    start(move |events| bring_news(asker, interval, &wished, events), &sender);
    start(move |events| bring_signals(signals, events), &sender);
    start(bring_keys, &sender);
    let palette = Palette::of_environment();
    loop {
        let drawn = screen.0.draw(|frame| draw::draw(frame, &mut state, palette));
        let lost = |error| Failure::new(format!("lost the terminal: {error}"));
        drawn.map_err(lost)?;
        let effect = match events.recv() {
            Ok(Event::Key(key)) => state.key(key),
            Ok(Event::Resize) => Effect::None,
            Ok(Event::NoKeys(error)) => return Err(lost(error)),
            Ok(Event::Signal(Signal::SIGTSTP)) => Effect::Suspend,
            Ok(Event::Signal(signal)) => {
                drop(screen);
                kernel::end_by(signal);
                break;
            }
            Ok(Event::News(look)) => {
                state.take(look);
                Effect::None
            }
            Ok(Event::Trouble(trouble)) => {
                state.trouble = Some(trouble);
                Effect::None
            }
            Err(_) => Effect::Quit, // every sender has ended
        };
        match effect {
            Effect::None => {}
            Effect::Quit => break,
            Effect::Watch(process) => _ = wishes.send(process), // fails once sampling has ended
            Effect::Suspend => {
                drop(screen);
                terminal::stop_here().map_err(lost)?;
                screen = Screen::begin()?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start(bring: impl FnOnce(&Sender<Event>) + Send + 'static, events: &Sender<Event>) {
    let events = events.clone();
    thread::spawn(move || bring(&events));
}

fn bring_keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(Input::Key(key)) => Event::Key(key),
            Ok(Input::Resize(..)) => Event::Resize,
            Ok(_) => continue,
            Err(error) => Event::NoKeys(error),
        };
        let is_last = matches!(event, Event::NoKeys(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

fn bring_signals(signals: SigSet, events: &Sender<Event>) {
    while let Ok(signal) = signals.wait() {
        if events.send(Event::Signal(signal)).is_err() {
            return;
        }
    }
}

/// Sends samples at once and then at every interval, or earlier if call sites of another process
/// are requested.
fn bring_news(
    mut asker: Asker,
    interval: Duration,
    wished: &Receiver<Option<Process>>,
    events: &Sender<Event>,
) {
    let mut watched = None;
    loop {
        let event = match asker.look(watched, TIMEOUT) {
            Ok(look) => Event::News(look),
            Err(_) if asker.process.is_some_and(Process::has_ended) => Event::News(Look::default()),
            Err(failure) => Event::Trouble(plain(&failure.to_string()).into_owned()),
        };
        if events.send(event).is_err() {
            return;
        }
        match wished.recv_timeout(interval) {
            Ok(wish) => watched = wish,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
