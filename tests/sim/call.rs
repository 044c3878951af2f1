//! One call of a driver function: what happens before and after its body, and how it waits.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::abi::{Code, Handle, Outcome};
use crate::exit;
use crate::faults::{self, Fault, Hit};
use crate::functions::FUNCTIONS;
use crate::logs;
use crate::model::races::clock::Clock;
use crate::model::work::callbacks;
use crate::model::work::op::{Deps, OpRef};
use crate::model::world::{self, Thread, World, config};
use crate::standstill::Standstill;

/// A call in progress. It holds the world's lock except while it waits.
pub struct Call {
    world: Option<MutexGuard<'static, World>>,
    pub thread: u32,
    pub name: &'static str,
    /// Whether stream NULL means the calling thread's stream.
    pub per_thread: bool,
    /// Code that the call returns although it takes full effect.
    fails_late: Option<Code>,
}

/// The body of every exported function.
pub fn enter(name: &'static str, body: impl FnOnce(&mut Call) -> Outcome) -> i32 {
    let mut call = match Call::begin(name) {
        Ok(call) => call,
        Err(code) => return answered(name, Err(code)),
    };
    let mut outcome = body(&mut call);
    if let Err(code) = call.tell_of_recapture() {
        outcome = Err(code);
    }
    if let Some(code) = call.fails_late {
        outcome = Err(code);
    }
    call.count_polls(&outcome);
    call.end();
    answered(name, outcome)
}

/// Returns the code of a call, and logs it if it is an error.
fn answered(name: &'static str, outcome: Outcome) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(code) => {
            // A real driver of this version does not have the function.
            if !is_newer(name) {
                logs::note(name, code);
            }
            code.0
        }
    }
}

/// The body of every function that is not modelled.
pub fn not_modelled(name: &'static str) -> i32 {
    enter(name, |_| Err(Code::NOT_SUPPORTED))
}

impl Call {
    fn begin(name: &'static str) -> Outcome<Call> {
        if forked() {
            return Err(Code::NOT_INITIALIZED);
        }
        exit::install();
        exit::refuse_after_end(name);
        // Like the real driver, starts the thread with the first context, and without the world's
        // lock: a new thread takes the loader's lock, whose holder, inside a library's constructor,
        // may want the world's.
        if name.starts_with("cuDevicePrimaryCtxRetain") || name.starts_with("cuCtxCreate") {
            callbacks::start();
        }
        pause(name);
        linger(name);
        let per_thread = name.ends_with("_ptsz") || name.ends_with("_ptds");
        let world = Some(world::lock());
        let (thread, fails_late) = (thread_number(), None);
        let mut call = Call { world, thread, name, per_thread, fails_late };
        let inside = callbacks::inside();
        let thread = call.thread;
        let world = call.world();
        *world.report.calls.entry(name).or_default() += 1;
        world.calls_count += u64::from(!is_look(name));
        let fault = faults::hit(&mut world.faults, name);
        if let Some(Hit { code, is_late: false }) = fault {
            return Err(Code(code));
        }
        if is_newer(name) {
            return Err(Code::NOT_SUPPORTED);
        }
        let allowed = if callbacks::inside_destructor() {
            allowed_anywhere(name)
        } else {
            allowed_inside_host_functions(name)
        };
        if inside && !allowed {
            if callbacks::inside_destructor() {
                world.report.problem(format!("sim: {name} was called inside a destructor"));
            }
            return Err(Code::NOT_PERMITTED);
        }
        if !world.initialized && !allowed_before_init(name) {
            return Err(Code::NOT_INITIALIZED);
        }
        if !is_question(name) {
            world.engine.progress += 1;
        }
        call.fails_late = fault.map(|hit| Code(hit.code));
        let world = call.world();
        let now = world.engine.now;
        let fresh = || Thread { ns: now, ..Thread::default() };
        let own = world.threads.entry(thread).or_insert_with(fresh);
        own.news = false;
        let doublings = call.polls().min(POLL_DOUBLINGS_MAX);
        call.spend(base_cost_ns(name) << doublings);
        Ok(call)
    }

    fn end(mut self) {
        // Another thread may wait for a free or for a spinner's word.
        self.world().poll_spinners();
        drop(self.world.take());
        world::changed().notify_all();
        linger(self.name);
    }

    pub fn world(&mut self) -> &mut World {
        self.world.as_mut().expect("the lock is held outside of waits")
    }

    /// Lets the program know if the call has captured a node again with other parameters. If the
    /// program does not agree, the capture fails.
    fn tell_of_recapture(&mut self) -> Outcome {
        let Some(changed) = self.world().captures.changed.take() else { return Ok(()) };
        let Some(recapture) = self.world().recapture(&changed) else { return Ok(()) };
        drop(self.world.take());
        let refused = changed.tell(recapture);
        self.world = Some(world::lock());
        let Some(capture) = refused else { return Ok(()) };
        self.world().kill_capture(capture, "the callback of a recapture");
        Err(Code::GRAPH_RECAPTURE_FAILURE)
    }

    /// Number of "not ready" answers in a row for this thread. Each poll takes twice as long as the
    /// one before: a polling loop gets there in a few calls, as it does on a GPU if it sleeps
    /// between them.
    fn polls(&mut self) -> u32 {
        let (thread, asks) = (self.thread, config().polls_grow && self.name.contains("Query"));
        self.world().threads.get(&thread).map_or(0, |thread| if asks { thread.polls } else { 0 })
    }

    fn count_polls(&mut self, outcome: &Outcome) {
        let (thread, name) = (self.thread, self.name);
        let Some(thread) = self.world().threads.get_mut(&thread) else { return };
        match outcome {
            Err(Code::NOT_READY) => thread.polls += 1,
            _ if is_look(name) => {}
            _ => thread.polls = 0,
        }
    }

    /// This thread's virtual clock.
    pub fn ns(&mut self) -> u64 {
        let thread = self.thread;
        self.world().threads[&thread].ns
    }

    /// Spends host time in the call. Work in flight continues meanwhile, even if the thread's own
    /// clock lags: the past of other threads is past for this one, too.
    pub fn spend(&mut self, ns: u64) {
        let thread = self.thread;
        let world = self.world();
        let state = world.threads.get_mut(&thread).expect("entered at the call's begin");
        state.ns += ns;
        let until = state.ns.max(world.engine.now + ns);
        world.run_until(until);
    }

    pub fn context(&mut self) -> Outcome<Handle> {
        let thread = self.thread;
        self.world().current_context(thread)
    }

    pub fn stream(&mut self, handle: Handle) -> Outcome<Handle> {
        let (thread, per_thread) = (self.thread, self.per_thread);
        self.world().resolve_stream(handle, per_thread, thread)
    }

    /// Waits for an operation; the host knows afterwards what it knew.
    pub fn wait(&mut self, op: &OpRef) {
        let waited = op.clone();
        self.wait_until(|_| waited.done());
        let state = op.state();
        let (end, clock) = (state.end_ns, state.clock.clone());
        drop(state);
        let thread = self.thread;
        self.know(&clock);
        let world = self.world();
        let state = world.threads.get_mut(&thread).expect("entered at the call's begin");
        state.ns = state.ns.max(end);
        self.let_text_out();
    }

    /// Records that the result of this call reports the end of work with this clock, and whether
    /// the host did not know that yet.
    pub fn learn(&mut self, clock: &Clock) {
        let thread = self.thread;
        let news = !self.world().host.clock.covers_all(clock);
        self.world().threads.get_mut(&thread).expect("entered at the call's begin").news |= news;
    }

    /// Joins the clock, unless `SIM_ONLY_WAITS_TELL` is set and the answer was by chance: then the
    /// program must not rely on it.
    fn know(&mut self, clock: &Clock) {
        if !(config().only_waits_tell && is_question(self.name)) {
            self.world().host.clock.join(clock);
        }
    }

    pub fn wait_all(&mut self, deps: Deps) {
        for op in &deps.ends {
            self.wait(op);
        }
        self.know(&deps.clock);
        self.let_text_out();
    }

    /// Measured: a call that waits, also for completed work, flushes the text that kernels have
    /// printed, bypassing the buffers of C. A query does not, nor does the end of the process.
    fn let_text_out(&mut self) {
        let text = std::mem::take(&mut self.world().kernel_text);
        // Not the function of the C library, because no thread must be cancelled in here.
        // SAFETY: writes bytes of this function; a text that cannot be written is lost, as on a
        // device.
        unsafe { libc::syscall(libc::SYS_write, 1, text.as_ptr(), text.len()) };
    }

    /// Waits until `reached`, moving virtual time. If nothing moves, another thread of the program
    /// must act: the lock is released, and memory is checked repeatedly.
    pub fn wait_until(&mut self, reached: impl Fn(&mut World) -> bool) {
        let mut standstill = None;
        self.world().waiters += 1;
        while !reached(self.world()) {
            if self.world().engine.host_running > 0 {
                standstill = None;
                self.pause(HOST_FUNCTION_PATIENCE);
                if reached(self.world()) {
                    break;
                }
            }
            if self.world().step() || self.world().poll_spinners() {
                continue;
            }
            self.pause(POLL);
            let progress = self.world().engine.progress;
            let limit = Duration::from_millis(config().deadlock_ms);
            let standstill = standstill.get_or_insert_with(|| Standstill::new(progress));
            if standstill.is_deadlock(progress, POLL, limit) {
                let name = self.name;
                exit::deadlock(self.world(), name);
            }
        }
        self.world().waiters -= 1;
    }

    /// Waits while another thread's free holds the context. Measured: these calls block: launches,
    /// allocations, other frees, records of an event on a stream and of a context, and calls that
    /// create or destroy streams or events. These do not: queries, waits of a stream or context for
    /// an event, stream-ordered allocation, and frees of such memory.
    pub fn wait_for_context(&mut self, context: Handle) {
        self.wait_for_contexts(&[context]);
    }

    /// Waits until no other thread's free holds any of these contexts.
    pub fn wait_for_contexts(&mut self, contexts: &[Handle]) {
        let thread = self.thread;
        self.wait_until(|world| {
            let is_free = |context: &Handle| {
                let held = world.contexts.find(*context).and_then(|context| context.held_by);
                held.is_none_or(|holder| holder == thread)
            };
            contexts.iter().all(is_free)
        });
    }

    fn pause(&mut self, time: Duration) {
        let world = self.world.take().expect("the lock is held");
        let waited = world::changed().wait_timeout(world, time);
        self.world = Some(waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0);
    }
}

/// Implements `SIM_PAUSE_MS`: pauses a call before it begins, without the world's lock.
fn pause(name: &str) {
    static PAUSES: OnceLock<Mutex<Vec<Fault>>> = OnceLock::new();
    if config().pause.is_empty() {
        return;
    }
    let read = || Mutex::new(faults::parse(&config().pause).expect("SIM_PAUSE_MS can be read"));
    let pauses = PAUSES.get_or_init(read).lock();
    let ms = faults::hit(&mut pauses.unwrap_or_else(|poisoned| poisoned.into_inner()), name);
    std::thread::sleep(Duration::from_millis(ms.map_or(0, |ms| ms.code) as u64));
}

/// Implements `SIM_LINGER_US`: pauses a call that creates or destroys an object before it begins,
/// or after it has taken effect and before it returns. Another thread then gets what this one has
/// released. With `SIM_LINGER_SEED` any call may pause: some functions often, as determined by the
/// seed, the others rarely.
fn linger(name: &str) {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let (us, seed) = (config().linger_us, config().linger_seed);
    if us == 0 {
        return;
    }
    let turn = || TURN.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9);
    let lingers = match seed {
        0 => {
            let concerned = ["Free", "Destroy", "Release", "Unload", "Register", "Unregister"];
            concerned.iter().any(|word| name.contains(word)) && turn() >> 31 == 0
        }
        _ => {
            let of_name = name.bytes().fold(seed, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
            });
            // One function in eight pauses in every call or every second one, the others in one of
            // 64.
            let one_of = if of_name >> 61 == 0 { 1 + (of_name >> 60 & 1) } else { 64 };
            u64::from(turn() >> 16) % one_of == 0
        }
    };
    if lingers {
        std::thread::sleep(Duration::from_micros(us));
    }
}

fn base_cost_ns(name: &str) -> u64 {
    match name {
        // A program that only polls must still make progress.
        "cuEventQuery" | "cuStreamQuery" | "cuStreamQuery_ptsz" => 1_000,
        "cuCtxRecordEvent" | "cuCtxWaitEvent" => 175,
        _ if name.starts_with("cuLaunchKernel") || name.starts_with("cuGraphLaunch") => 4_000,
        _ if name.starts_with("cuMemcpy") || name.starts_with("cuMemset") => 2_000,
        _ if name.starts_with("cuEvent") || name.starts_with("cuStreamWait") => 150,
        _ => 50,
    }
}

fn is_question(name: &str) -> bool {
    name.contains("Query") || name.contains("IsCapturing") || is_look(name)
}

/// Whether the call only reads state that another process may change at any time.
fn is_look(name: &str) -> bool {
    let looks = ["cuMemGetInfo", "cuCtxPush", "cuCtxPop", "cuCtxGetId", "cuThreadExchange"];
    looks.iter().any(|look| name.starts_with(look)) || name == "cuDevicePrimaryCtxGetState"
}

fn allowed_before_init(name: &str) -> bool {
    let prefixes =
        ["cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetError", "cuGetExport"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || name.starts_with("cuThreadExchange")
        || name.starts_with("cuCtxGetCurrent")
}

/// Measured: queries of one stream or event by its handle are answered, and an event is recorded.
fn allowed_inside_host_functions(name: &str) -> bool {
    let prefixes = ["cuStreamGetId", "cuStreamGetCtx", "cuStreamIsCapturing", "cuStreamQuery"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || ["cuEventQuery", "cuEventRecord", "cuEventRecord_ptsz"].contains(&name)
        || name.starts_with("cuThreadExchange")
        || allowed_anywhere(name)
}

fn allowed_anywhere(name: &str) -> bool {
    let prefixes = ["cuDriverGetVersion", "cuGetProcAddress", "cuGetError"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the function is newer than the driver.
fn is_newer(name: &str) -> bool {
    static VERSIONS: OnceLock<HashMap<&'static str, i32>> = OnceLock::new();
    let all = || FUNCTIONS.iter().map(|function| (function.symbol, function.api_version)).collect();
    VERSIONS.get_or_init(all).get(name).copied().unwrap_or(0) > config().driver_version
}

/// Numbers of host threads, from 1.
pub fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// Whether this process was forked from the one that first called: its driver is gone.
pub fn forked() -> bool {
    static OWNER: AtomicI32 = AtomicI32::new(0);
    // SAFETY: asks the system for a number.
    let own = unsafe { libc::getpid() };
    let owner = OWNER.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
    owner.is_err_and(|owner| owner != own)
}

const POLL: Duration = Duration::from_millis(1);
const POLL_DOUBLINGS_MAX: u32 = 10;
const HOST_FUNCTION_PATIENCE: Duration = Duration::from_millis(5);
