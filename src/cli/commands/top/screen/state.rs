//! State of the screen and its changes by keys. Independent of the terminal and the clock.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::super::gpus::Named;
use super::super::lines::{self, About, PROCESS_COLUMNS, SITE_COLUMNS};
use super::super::rates::Rates;
use super::super::samples::{Look, Sample};
use super::super::tables;
use super::browser::Browser;
use super::history::History;
use crate::live::CallSite;
use crate::processes::Process;

/// Initial sort columns: ALLOCATED and BYTES.
const BY_ALLOCATED: usize = 2;
const BY_BYTES: usize = 0;

pub(super) struct State {
    pub processes: Browser<PROCESS_COLUMNS>,
    pub sites: Browser<SITE_COLUMNS>,
    /// `None` if all processes are shown.
    pub watched: Option<Watched>,
    /// Whether the filter is being edited.
    pub writes_filter: bool,
    /// Whether the help on keys is shown; the next key closes it.
    pub shows_help: bool,
    pub history: History,
    /// GPUs that the processes use.
    pub gpus: Vec<Named>,
    /// Text shown if there are no lines.
    pub nothing: &'static str,
    /// The current problem, if any.
    pub trouble: Option<String>,
    /// Number of lines per page.
    pub page: usize,
    /// Whether the watched process is the only one, so that no key leads back.
    is_only: bool,
    rates: Rates,
    /// Samples of the last look. `ended` holds those of processes that have ended since, newest
    /// first.
    samples: Vec<Sample>,
    ended: Vec<Sample>,
}

/// Maximum number of ended processes kept in the table.
const ENDED_MAX: usize = 20;

/// The process whose call sites are shown.
pub(super) struct Watched {
    pub process: Process,
    /// Latest sample, kept after the process has ended. `None` until the first arrives.
    pub sample: Option<Sample>,
    pub has_ended: bool,
    /// First frame shown.
    pub frame: usize,
}

/// Action that a key requires outside the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    None,
    Quit,
    Suspend,
    /// Request the call sites of this process from now on.
    Watch(Option<Process>),
}

impl Watched {
    fn new(process: Process) -> Watched {
        Watched { process, sample: None, has_ended: false, frame: 0 }
    }
}

impl State {
    pub(super) fn new(only: Option<Process>, most: usize) -> State {
        State {
            processes: Browser::sorted_by(BY_ALLOCATED, most),
            sites: Browser::sorted_by(BY_BYTES, most),
            watched: only.map(Watched::new),
            writes_filter: false,
            shows_help: false,
            history: History::default(),
            gpus: Vec::new(),
            nothing: "",
            trouble: None,
            page: 1,
            is_only: only.is_some(),
            rates: Rates::default(),
            samples: Vec::new(),
            ended: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, look: Look) {
        self.trouble = None;
        self.history.note(&look);
        if let Some(watched) = &mut self.watched {
            let mut found = look.samples.iter();
            let sample = found.find(|sample| sample.process == watched.process);
            watched.has_ended = sample.is_none() && !look.silent.contains(&watched.process);
            // An earlier request may not have included call sites.
            if let Some(sample) = sample.filter(|sample| says_sites(sample)) {
                self.sites.take(lines::sites(&look, sample, &self.rates));
                watched.sample = Some(sample.clone());
            }
        }
        self.gpus = look.gpus();
        self.nothing = tables::nothing(&look);
        self.note_ended(&look);
        let mut all = lines::processes(&look, &self.rates);
        all.extend(self.ended.iter().flat_map(|sample| lines::ended(&look, sample)));
        self.processes.take(all);
        self.rates.note(&look.samples);
    }

    /// Keeps the last sample of a process that has ended, until another process has its number.
    fn note_ended(&mut self, look: &Look) {
        let is_there = |process| {
            look.silent.contains(&process)
                || look.samples.iter().any(|sample| sample.process == process)
        };
        let gone = std::mem::take(&mut self.samples).into_iter();
        let gone = gone.filter(|sample| !is_there(sample.process) && sample.process.has_ended());
        self.ended.splice(0..0, gone);
        self.ended.retain(|sample| !is_there(sample.process));
        self.ended.truncate(ENDED_MAX);
        self.samples.clone_from(&look.samples);
    }

    /// Returns the chosen call site with its stack.
    pub(super) fn site(&self) -> Option<&CallSite> {
        let About::Site(device, frames) = &self.sites.chosen()?.about else { return None };
        let sites = &self.watched.as_ref()?.sample.as_ref()?.statistics.call_sites;
        let mut sites = sites.iter().flatten();
        sites.find(|site| site.device == *device && site.frames == *frames)
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return Effect::Quit,
            KeyCode::Char('z') if with_control => return Effect::Suspend,
            KeyCode::Char(_) if with_control => return Effect::None,
            KeyCode::Char('q') if self.shows_help => return Effect::Quit,
            _ if self.shows_help => self.shows_help = false,
            _ if self.writes_filter => self.key_of_filter(key.code),
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('/') => self.writes_filter = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Enter => return self.enter(),
            KeyCode::Esc | KeyCode::Backspace => return self.leave(),
            KeyCode::Left => self.scroll(-1),
            KeyCode::Right => self.scroll(1),
            code => self.key_of_table(code),
        }
        Effect::None
    }

    fn key_of_filter(&mut self, code: KeyCode) {
        let mut filter = self.filter().to_string();
        match code {
            KeyCode::Enter => self.writes_filter = false,
            KeyCode::Esc => {
                self.writes_filter = false;
                filter.clear();
            }
            KeyCode::Backspace => _ = filter.pop(),
            KeyCode::Char(letter) => filter.push(letter),
            _ => return,
        }
        match &self.watched {
            None => {
                self.processes.filter = filter;
                self.processes.arrange();
            }
            Some(_) => {
                self.sites.filter = filter;
                self.sites.arrange();
            }
        }
    }

    /// Returns the filter of the table shown.
    pub(super) fn filter(&self) -> &str {
        if self.watched.is_none() { &self.processes.filter } else { &self.sites.filter }
    }

    fn key_of_table(&mut self, code: KeyCode) {
        match &mut self.watched {
            None => key_of(&mut self.processes, code, self.page),
            Some(watched) => {
                let before = self.sites.chosen().map(|line| line.about.clone());
                key_of(&mut self.sites, code, self.page);
                // Show the beginning of a newly chosen stack.
                if self.sites.chosen().map(|line| &line.about) != before.as_ref() {
                    watched.frame = 0;
                }
            }
        }
    }

    fn enter(&mut self) -> Effect {
        let chosen = self.processes.chosen().map(|line| &line.about);
        let (None, Some(&About::Process(process, _))) = (&self.watched, chosen) else {
            return Effect::None;
        };
        self.watched = Some(Watched::new(process));
        self.sites = Browser::sorted_by(BY_BYTES, self.sites.most);
        Effect::Watch(Some(process))
    }

    /// Leaves the filter first, then the process.
    fn leave(&mut self) -> Effect {
        if !self.filter().is_empty() {
            self.key_of_filter(KeyCode::Esc);
            return Effect::None;
        }
        if self.is_only || self.watched.take().is_none() {
            return Effect::None;
        }
        Effect::Watch(None)
    }

    fn scroll(&mut self, by: isize) {
        let last = self.site().map_or(0, |site| site.frames.len().saturating_sub(1));
        if let Some(watched) = &mut self.watched {
            watched.frame = watched.frame.saturating_add_signed(by).min(last);
        }
    }
}

/// Returns whether the sample includes call sites, or states that none are recorded.
fn says_sites(sample: &Sample) -> bool {
    sample.statistics.call_sites.is_some() || sample.statistics.libraries.is_none()
}

fn key_of<const N: usize>(browser: &mut Browser<N>, code: KeyCode, page: usize) {
    let page = page.max(1) as isize;
    match code {
        KeyCode::Up | KeyCode::Char('k') => browser.step(-1),
        KeyCode::Down | KeyCode::Char('j') => browser.step(1),
        KeyCode::PageUp => browser.step(-page),
        KeyCode::PageDown => browser.step(page),
        KeyCode::Home => browser.choose(0),
        KeyCode::End => browser.choose(usize::MAX),
        KeyCode::Char('s') => browser.sort_by_next(true),
        KeyCode::Char('S') => browser.sort_by_next(false),
        KeyCode::Char('r') => {
            browser.reversed = !browser.reversed;
            browser.arrange();
        }
        _ => {}
    }
}
