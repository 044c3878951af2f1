//! Plays a program by plain driver calls, one line after the other in the program's order, and logs
//! the results of each line.
//!
//! Each thread of the program is a thread of this process. The main thread plays thread 0, and
//! passes the other threads their runs of lines when it is their turn. All threads play the lines
//! between `together` and `joined` at once.

/// Calls a function of the driver.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each argument is a value, or a pointer of the player that outlives the call and
        // is as large as this function's documentation requires.
        cachealloc_tests::driver::check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

mod captures;
mod contexts;
pub mod crash;
mod crew;
mod end;
mod host;
mod host_functions;
mod kept;
mod kernels;
mod memory;
mod nodes;
mod order;
mod questions;
mod references;
mod request;
mod slots;
mod work;
mod wrong;

use std::cell::Cell;
use std::collections::HashSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cachealloc_tests::driver::{Driver, LEGACY, Lookup, Outcome, PER_THREAD};

use crate::grammar::{Line, Op, Program};
use crate::log::{Log, Record};
use references::Storm;
use slots::{Ctx, Slots, Stream};

/// How long kernels take, relative to the program's delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    Instant,
    Slow,
    Mixed(u64),
}

impl Pace {
    pub fn parse(text: &str) -> Option<Pace> {
        match text {
            "instant" => Some(Pace::Instant),
            "slow" => Some(Pace::Slow),
            _ => Some(Pace::Mixed(text.strip_prefix("mixed")?.parse().ok()?)),
        }
    }

    pub fn text(self) -> String {
        match self {
            Pace::Instant => "instant".into(),
            Pace::Slow => "slow".into(),
            Pace::Mixed(seed) => format!("mixed{seed}"),
        }
    }

    fn delay(self, line: usize, ns: u64) -> u64 {
        match self {
            Pace::Instant => 0,
            Pace::Slow => ns.max(SLOW_NS),
            Pace::Mixed(seed) => {
                match cachealloc_tests::dice::Dice::new(seed ^ (line as u64) << 20).below(4) {
                    0 => 0,
                    1 => ns / 4,
                    2 => ns,
                    _ => ns * 2,
                }
            }
        }
    }
}

const SLOW_NS: u64 = 300_000;

pub struct Options {
    pub pace: Pace,
    pub log: String,
    /// Lines whose request found no memory without the library: memory that they get is freed at
    /// once.
    pub refused: HashSet<usize>,
    /// Whether requests in captures are made in the way of a caching allocator.
    pub cached: bool,
    /// Whether the program does what it does on a GPU, where nothing is simulated.
    pub gpu: bool,
}

pub struct Player {
    driver: Arc<Driver>,
    slots: Slots,
    log: Log,
    options: Options,
    /// Pinned words on which kernels spin; 0 until the first is needed.
    flags: Mutex<u64>,
    /// References to the primary context, besides the first.
    references: AtomicUsize,
    storm: Mutex<Option<Storm>>,
    /// Answers that host functions got: the line and the code.
    answers: Arc<Mutex<Vec<(usize, i32)>>>,
    /// Lines that have been played.
    played: AtomicUsize,
    lines: usize,
    /// Whether a block freed while a graph references it is kept for the graph, by a cache or by
    /// the library.
    keeps_for_graphs: bool,
    /// Whether kernels print. Nothing waits before the process ends then: only the program's frees
    /// flush the text.
    prints: bool,
}

/// One thread of the program.
pub struct Actor<'a> {
    player: &'a Player,
    /// The context that the thread has made current.
    current: Option<Ctx>,
    /// The previously current contexts, over which others were pushed.
    below: Vec<Option<Ctx>>,
    /// The primary contexts to which the thread holds references, as they were when it took them.
    taken: Vec<Ctx>,
    /// Address of the pinned memory that the thread's last line freed, or 0.
    freed: u64,
    /// Whether the thread has used its own default stream.
    own_stream: Cell<bool>,
}

/// The code of a line and its other results, or `None` if the line was skipped.
type Seen = Option<(i32, Vec<u64>)>;

/// Plays the programs one after the other, each with its own threads and contexts.
pub fn play_each(programs: Vec<(Program, Options)>) -> Result<(), String> {
    crash::name_the_place();
    let mut driver = Driver::load(Lookup::ProcAddress)?;
    if programs.iter().any(|(_, options)| options.gpu) {
        driver = driver.without_simulation();
    }
    let driver = Arc::new(driver);
    let several = programs.len() > 1;
    for (program, options) in programs {
        if !several {
            return play(&driver, &program, options).map(drop);
        }
        let driver = driver.clone();
        // A thread's state, such as its capture mode, ends with the thread.
        let played = std::thread::spawn(move || {
            let player = play(&driver, &program, options)?;
            player.clear_away().map_err(|code| format!("what it leaves stays: error {code}"))
        });
        played.join().map_err(|_| "a program panicked")??;
    }
    Ok(())
}

fn play(driver: &Arc<Driver>, program: &Program, options: Options) -> Result<Player, String> {
    let log = Log::create(&options.log)?;
    let player = Player {
        driver: driver.clone(),
        slots: Slots::new(),
        log,
        options,
        flags: Mutex::new(0),
        references: AtomicUsize::new(0),
        storm: Mutex::new(None),
        answers: Arc::default(),
        played: AtomicUsize::new(0),
        lines: program.lines.len(),
        keeps_for_graphs: ["cached", "uploads"].contains(&program.theme.as_str()),
        prints: program.theme == "text",
    };
    let first = player.open_primary().map_err(|code| format!("no context: error {code}"))?;
    player.slots.contexts.put(0, first.clone());
    player.make_memory_scarce(program);
    let mut main = Actor { player: &player, current: Some(first), ..Actor::of(&player) };
    crew::play_all(&mut main, &program.lines);
    player.end_storm();
    main.look_at_everything();
    drop(main);
    Ok(player)
}

impl Player {
    /// On a GPU one allocation takes the memory that the program must not find; the simulated
    /// device is small.
    fn make_memory_scarce(&self, program: &Program) {
        if !program.wants_scarcity() || self.driver.races().is_some() {
            return;
        }
        let Ok((free, _)) = self.driver.memory_info() else { return };
        let taken = free.saturating_sub((program.memory_mb as usize) << 20) >> 21 << 21;
        // If even this request fails, the device is full enough.
        let _ = self.driver.alloc(taken);
    }
}

impl<'a> Actor<'a> {
    fn of(player: &'a Player) -> Actor<'a> {
        Actor {
            player,
            current: None,
            below: Vec::new(),
            taken: Vec::new(),
            freed: 0,
            own_stream: Cell::new(false),
        }
    }

    fn new(player: &'a Player) -> Actor<'a> {
        let mut actor = Actor::of(player);
        if let Some(first) = player.slots.contexts.get(0) {
            // A lost context cannot be made current in a new thread, whose calls report this.
            let _ = actor.make_current(&first);
        }
        actor
    }

    /// Measured: at the end of a thread the driver may wait forever for the thread's own stream.
    fn leave_own_stream(&self) {
        if self.own_stream.get() && self.driver().races().is_none() {
            let _ = self.driver().synchronize_stream(PER_THREAD); // whose context may be lost
        }
    }

    fn driver(&self) -> &'a Driver {
        &self.player.driver
    }

    fn slots(&self) -> &'a Slots {
        &self.player.slots
    }

    fn play(&mut self, index: usize, line: &Line) {
        if let Some((code, words)) = self.perform(index, line) {
            self.player.log.write(&Record { line: index, code, words });
        }
        self.player.played.fetch_add(1, Ordering::Relaxed);
    }

    fn perform(&mut self, index: usize, line: &Line) -> Seen {
        let freed = std::mem::take(&mut self.freed);
        match line.op {
            Op::HostGone => {
                let (mut flags, at) = (0, NonZero::new(freed)?.get());
                code(call!(self.driver(), cuMemHostGetFlags(&mut flags, at)))
            }
            Op::Together | Op::Joined | Op::ThreadEnd => None,
            Op::Init
            | Op::CtxCreate
            | Op::CtxSet
            | Op::CtxDestroy
            | Op::CtxReset
            | Op::CtxSync
            | Op::CtxPush
            | Op::CtxPop
            | Op::CtxBeyond
            | Op::GreenCreate
            | Op::ModuleLoad
            | Op::ModuleUnload => self.contexts(line),
            Op::RefTake
            | Op::RefGive
            | Op::RefGiveAll
            | Op::RefStorm
            | Op::PrimaryFlags
            | Op::PrimaryTake
            | Op::PrimaryGive
            | Op::CtxAttach
            | Op::CtxDetach
            | Op::CtxNone
            | Op::Rest => self.references(line),
            Op::StreamCreate
            | Op::StreamDestroy
            | Op::StreamSync
            | Op::StreamQuery
            | Op::EventCreate
            | Op::EventDestroy
            | Op::EventRecord
            | Op::EventWait
            | Op::EventRecordFlags
            | Op::EventSync
            | Op::EventQuery
            | Op::EventElapsed
            | Op::CtxRecord
            | Op::CtxWait => self.order(line),
            Op::CaptureBegin
            | Op::CaptureEnd
            | Op::CaptureStatus
            | Op::CaptureMode
            | Op::GraphBuild
            | Op::Instantiate
            | Op::InstantiateUploaded
            | Op::ExecSet
            | Op::Upload
            | Op::Launch
            | Op::ExecUpdate
            | Op::ExecDestroy
            | Op::GraphClone
            | Op::GraphDestroy => self.captures(line),
            Op::HostAlloc
            | Op::HostRegister
            | Op::HostUnregister
            | Op::HostPlain
            | Op::HostFree
            | Op::HostRead
            | Op::HostWrite
            | Op::ToHost
            | Op::FillHost
            | Op::FromHost
            | Op::HostFunction
            | Op::HostRequest
            | Op::Keep
            | Op::FillFound
            | Op::Answers => self.host(index, line),
            Op::Fill
            | Op::Memset
            | Op::Copy
            | Op::Add
            | Op::FillArray
            | Op::ReadArray
            | Op::Nothing
            | Op::Say
            | Op::Spin
            | Op::SpinFound
            | Op::Raise
            | Op::WriteValue => self.work(index, line),
            Op::Read
            | Op::Range
            | Op::Attribute
            | Op::HostAttribute
            | Op::MemoryHas
            | Op::PoolHolds
            | Op::HostMapped
            | Op::GraphMemory
            | Op::Access => self.questions(line),
            Op::Wrong | Op::Fault | Op::FaultsOver => self.trouble(line),
            _ => self.memory(index, line),
        }
    }

    fn delay(&self, index: usize, ns: u64) -> u64 {
        self.player.options.pace.delay(index, ns)
    }

    /// Returns the stream in a slot; the first two slots are the default streams of the current
    /// context.
    fn stream(&self, slot: u64) -> Option<Stream> {
        let default = |handle| {
            let ctx = self.current.clone().filter(|ctx| ctx.alive())?;
            Some(Stream { handle, ctx, capture: Arc::default() })
        };
        match slot {
            0 => default(LEGACY),
            1 => {
                self.own_stream.set(true);
                default(PER_THREAD)
            }
            _ => self.slots().streams.get(slot),
        }
    }
}

/// The result of a call that returned only a code.
fn code(outcome: Outcome) -> Seen {
    Some((outcome.err().unwrap_or(0), Vec::new()))
}
