//! The open captures: which thread began them, which streams take part, and what they may reuse.
//!
//! Note [Whose capture]. An allocation belongs to the capture that its thread takes part in
//! (Note [Threads of a capture] in `participants`). Neither the mode of the capture nor the current
//! context matters, even if the thread has changed its mode meanwhile. On the plain driver such a
//! call ends the capture, or its memory is for captured work on streams of that context, which has
//! joined. So a capture has memory in each context. A thread that takes part in none belongs to a
//! global capture of another thread on streams of the current context, unless its own mode prevents
//! that. On the plain driver its call would end that capture, so no program that works there makes
//! it. All other calls are served as if no stream captured.
//!
//! A capture's lock is held from the first query about it to the last change. Its end waits for the
//! lock, so a graph that the program has received is not queried. It is not held while a request
//! asks the driver for memory or waits: the other threads of a capture may submit what the request
//! waits for, or end the capture.

use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{IdleEpoch, PrivatePool};

use crate::driver::api;
use crate::driver::graphs;
use crate::driver::graphs::Capturing;
use crate::driver::sys::{
    CAPTURE_MODE_GLOBAL, CAPTURE_MODE_RELAXED, CuResult, GraphHandle, StreamHandle,
};
use crate::graphs::captured_work::{FULL_ORDER_COUNT, Member, Work};
use crate::graphs::node_references::ReferencedRanges;
use crate::graphs::participants;
use crate::graphs::participants::Threads;
use crate::graphs::pools;
use crate::lock::lock;
use crate::ordering::captures;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::thread;
use crate::state::thread::Thread;

/// A capture, from its begin to its end.
pub(crate) struct OpenCapture {
    origin: Member,
    /// Thread that began it.
    thread: usize,
    pub threads: Mutex<Threads>,
    /// Moment of its begin, in moments of `participants`.
    pub begun_at: u64,
    mode: u32,
    /// The driver's number for it.
    number: u64,
    pub graph: GraphHandle,
    context: &'static Context,
    /// Epoch of its begin in each context that existed, by id.
    begun: Vec<(u64, IdleEpoch)>,
    /// Its memory, the newest last.
    pools: Mutex<Vec<OwnPool>>,
    pub names: Mutex<ReferencedRanges>,
    /// Whether a call was served that would have ended it on the plain driver.
    beyond_native: AtomicBool,
    work: Mutex<Work>,
}

/// Memory of a capture in one context.
#[derive(Clone, Copy)]
struct OwnPool {
    context: &'static Context,
    pool: PrivatePool,
    /// Whether it serves requests after `Work::reuse` has turned opaque: nothing in it was ever
    /// found to be free again.
    sealed: bool,
}

static OPEN: Mutex<Vec<Arc<OpenCapture>>> = Mutex::new(Vec::new());
/// Captures that have ended without a call of the program, and have not begun to let go of their
/// memory.
static DROPPED: Mutex<Vec<Arc<OpenCapture>>> = Mutex::new(Vec::new());
/// Number of these, and of those that have begun, readable without the lock.
static DROPPED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while dropped captures let go: another request finds their memory only afterwards.
static LETTING_GO: Mutex<()> = Mutex::new(());

/// Notes that a capture has begun on this stream, in this mode.
pub(crate) fn begun(stream: StreamHandle, stream_id: u64, context: &'static Context, mode: u32) {
    if !graphs::has_capture_info() {
        return;
    }
    let Some(Capturing { number, graph, .. }) = graphs::capturing(stream) else { return };
    let origin = Member::new(stream, stream_id);
    let mark = |context: &Context| (context.id, lock(&context.allocator).idle_mark());
    let thread = thread::with(Thread::number);
    let capture = OpenCapture {
        origin,
        thread,
        threads: Mutex::new(Threads::of(thread)),
        begun_at: participants::moment(),
        mode,
        number,
        graph,
        context,
        begun: contexts::all().map(mark).collect(),
        pools: Mutex::new(Vec::new()),
        names: Mutex::new(ReferencedRanges::default()),
        beyond_native: AtomicBool::new(false),
        work: Mutex::new(Work::new(origin)),
    };
    lock(&OPEN).push(Arc::new(capture));
}

/// Runs the real End of the capture that began on this stream, or the end of the stream; no query
/// about the capture runs meanwhile.
pub(crate) fn ending(stream: StreamHandle, real: impl FnOnce() -> CuResult) -> CuResult {
    let origin = |capture: &&Arc<OpenCapture>| capture.origin.is(stream);
    let capture = lock(&OPEN).iter().find(origin).cloned();
    let mut work = capture.as_deref().map(|capture| lock(&capture.work));
    let result = real();
    if let (Some(capture), Some(work)) = (&capture, &mut work) {
        // The handle may mean another stream by now.
        work.over = result.is_ok() || !capture.is_active();
        if work.over {
            capture.let_go();
        }
    }
    result
}

/// Drops all captures that did not begin on these streams. The caller may hold locks under which
/// no memory can be let go.
pub(crate) fn keep(runs: impl Fn(u64) -> bool) {
    // Where the lock is held, the program ends the capture.
    let has_no_end = |capture: &Arc<OpenCapture>| capture.work.try_lock().is_ok_and(|it| !it.over);
    let mut dropped = lock(&DROPPED);
    let before = dropped.len();
    let mut open = lock(&OPEN);
    dropped.extend(open.extract_if(.., |capture| !runs(capture.origin.id)).filter(has_no_end));
    DROPPED_COUNT.fetch_add(dropped.len() - before, Ordering::AcqRel);
}

/// Lets the captures that were dropped let go of their memory. The caller must hold no lock of an
/// allocator.
pub(crate) fn let_go_dropped() {
    if DROPPED_COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let _turn = lock(&LETTING_GO);
    let dropped = core::mem::take(&mut *lock(&DROPPED));
    dropped.iter().for_each(|capture| capture.let_go());
    DROPPED_COUNT.fetch_sub(dropped.len(), Ordering::AcqRel);
}

/// Returns the capture that a call of this thread belongs to; see Note [Whose capture].
pub(crate) fn of_call(thread: &Thread, context: &Context) -> Option<Arc<OpenCapture>> {
    let open = lock(&OPEN);
    let here = |capture: &Arc<OpenCapture>| core::ptr::eq(capture.context, context);
    let number = thread.number();
    let own = open.iter().filter(|own| here(own) || rule_holds(Rule::CaptureInEveryContext));
    let own = own.filter_map(|own| Some((lock(&own.threads).last(number)?, own)));
    if let Some((_, own)) = own.max_by_key(|(last, _)| *last) {
        return Some(own.clone());
    }
    let global = |capture: &&Arc<OpenCapture>| capture.mode == CAPTURE_MODE_GLOBAL && here(capture);
    let global = open.iter().rfind(global);
    let global = global.filter(|capture| capture.origin.may_be_asked()).cloned();
    drop(open);
    global.filter(|_| api::capture_mode() == CAPTURE_MODE_GLOBAL)
}

/// Returns the open capture with the driver's number.
pub(crate) fn of_number(number: u64) -> Option<Arc<OpenCapture>> {
    lock(&OPEN).iter().find(|capture| capture.number == number).cloned()
}

/// Returns the open capture that this stream takes part in, and its record there.
pub(crate) fn of_stream(stream: StreamHandle) -> Option<(Arc<OpenCapture>, Member)> {
    let captures = lock(&OPEN).clone();
    captures.into_iter().find_map(|capture| {
        let member = lock(&capture.work).members.iter().find(|member| member.is(stream)).copied();
        Some((capture, member?))
    })
}

/// Returns the open capture that owns this memory.
pub(crate) fn of_pool(pool: PrivatePool) -> Option<Arc<OpenCapture>> {
    let has = |capture: &&Arc<OpenCapture>| lock(&capture.pools).iter().any(|own| own.pool == pool);
    lock(&OPEN).iter().find(has).cloned()
}

/// Returns the record of a stream that is about to wait for an event, and so may join a capture.
pub(crate) fn may_join(stream: StreamHandle) -> Option<Member> {
    let free = !lock(&OPEN).is_empty() && !captures::is_capturing(stream);
    let id = if free { api::stream_get_id(stream).ok() } else { None };
    id.map(|id| Member::new(stream, id))
}

/// Adds a stream to its capture after it has waited, or was not destroyed.
pub(crate) fn waited(member: Member) {
    let Some(Capturing { number, .. }) = member.now() else { return };
    let Some(capture) = of_number(number) else { return };
    thread::with(|thread| participants::takes_part(thread, &capture));
    let Some(mut work) = capture.enter() else { return };
    work.members.push(member);
    // Reused memory must be ordered before what this stream captures.
    if work.is_concerned() {
        work.look(|_| ());
    }
}

/// Removes a stream that is about to be destroyed, and returns its record in its capture.
pub(crate) fn leaves(stream: StreamHandle) -> Option<Member> {
    let (capture, member) = of_stream(stream)?;
    let mut work = capture.enter()?;
    if work.is_concerned() && work.look(|_| ()).is_some() {
        work.reuse.leaves(member.id, graphs::edges_into);
    }
    work.members.retain(|known| known.id != member.id);
    Some(member)
}

/// Notes that the program changes nodes or edges explicitly, in this graph or an unknown one.
pub(crate) fn edited(graph: Option<GraphHandle>) {
    let captures = lock(&OPEN).clone();
    let concerned = |capture: &&Arc<OpenCapture>| graph.is_none_or(|graph| graph == capture.graph);
    for capture in captures.iter().filter(concerned) {
        lock(&capture.work).reuse.becomes_opaque();
        capture.reference_all();
        if graph.is_some() {
            thread::with(|thread| participants::takes_part(thread, capture));
        }
    }
}

/// Restores the order after the program has set the dependencies of this stream's next node: reused
/// memory must be ordered before that node, too.
pub(crate) fn terminals_set(stream: StreamHandle) {
    let Some((capture, _)) = of_stream(stream) else { return };
    let Some(mut work) = capture.enter() else { return };
    if work.is_concerned() {
        work.look(|_| ());
    }
}

/// Returns whether the next kernel on this stream must not start early. Each such mark is returned
/// once.
pub(crate) fn takes_full_order(stream: StreamHandle) -> bool {
    if FULL_ORDER_COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    let Some((capture, _)) = of_stream(stream) else { return false };
    let mut work = lock(&capture.work);
    let before = work.full_order.len();
    work.full_order.retain(|marked| *marked != stream);
    let marked = work.full_order.len() != before;
    FULL_ORDER_COUNT.fetch_sub(usize::from(marked), Ordering::AcqRel);
    marked
}

/// Restores the mark that `takes_full_order` has returned: the driver has refused the launch.
pub(crate) fn needs_full_order(stream: StreamHandle) {
    if let Some((capture, _)) = of_stream(stream) {
        lock(&capture.work).full_order.push(stream);
        FULL_ORDER_COUNT.fetch_add(1, Ordering::AcqRel);
    }
}

impl OpenCapture {
    /// Locks the capture for a call that belongs to it. Returns `None` if it has ended or was
    /// invalidated.
    pub(crate) fn enter(&self) -> Option<MutexGuard<'_, Work>> {
        let work = lock(&self.work);
        (!work.over && self.is_active()).then_some(work)
    }

    /// Returns whether the capture goes on. Another thread's default stream cannot be asked: there
    /// it goes on until its end.
    fn is_active(&self) -> bool {
        !self.origin.may_be_asked()
            || self.origin.now().is_some_and(|now| now.number == self.number)
    }

    /// Returns its memory in this context.
    pub(crate) fn pool(&self, work: &Work, context: &'static Context) -> PrivatePool {
        let opaque = work.reuse.is_opaque();
        let newest = |own: &&OwnPool| core::ptr::eq(own.context, context);
        let newest = lock(&self.pools).iter().rfind(newest).copied();
        if let Some(own) = newest.filter(|own| own.sealed || !opaque) {
            return own.pool;
        }
        // Memory of a later context was never idle before the capture.
        let begun = self.begun.iter().find(|(id, _)| *id == context.id);
        let begun = begun.map_or(IdleEpoch::NEVER, |(_, mark)| *mark);
        let pool = pools::open(context, begun, |note, gone| self.keep_with_graph(note, gone));
        lock(&self.pools).push(OwnPool { context, pool, sealed: opaque });
        pool
    }

    /// Returns whether, on the plain driver, an allocation of this thread is made at once and not
    /// as part of the capture.
    pub(crate) fn lets_allocate(&self, thread: &Thread) -> bool {
        // Neither a thread-local capture nor a thread in that mode concerns another one.
        let is_own = thread.number() == self.thread;
        let is_local = |mode: u32| mode != CAPTURE_MODE_GLOBAL && !is_own;
        let lets = |mode: u32| mode == CAPTURE_MODE_RELAXED || is_local(mode);
        lets(self.mode) || lets(api::capture_mode())
    }

    /// Notes a served call that, on the plain driver, would have ended the capture, or been a part
    /// of its graph.
    pub(crate) fn goes_beyond_native(&self) {
        self.beyond_native.store(true, Ordering::Relaxed);
    }

    /// References everything that the program holds of its memory: a node may use any of it.
    pub(crate) fn reference_all(&self) {
        let pools = lock(&self.pools).clone();
        let mut names = lock(&self.names);
        for own in pools {
            let allocator = lock(&own.context.allocator);
            allocator.held_of(own.pool).for_each(|(begin, end)| names.add(begin.0, end.0));
        }
    }

    /// Makes memory that its graph does not use ordinary memory, once the capture has ended, and
    /// again for each request that the end has overtaken. Memory that the program holds becomes
    /// ordinary too if all of it would have worked on the plain driver: there a free takes such
    /// memory away from the graph.
    pub(crate) fn let_go(&self) {
        let native = !self.beyond_native.load(Ordering::Relaxed);
        let held_leaves = native && rule_holds(Rule::HeldLeavesWithCapture);
        let pools = lock(&self.pools).clone();
        let names = lock(&self.names);
        for OwnPool { context, pool, .. } in pools {
            if !rule_holds(Rule::PoolLivesWithGraph) {
                pools::close(context, pool);
            } else if !context.is_dead() && rule_holds(Rule::UnreferencedIsFree) {
                pools::open_rest(context, pool, &names, held_leaves);
            }
        }
    }

    /// Requests a call of `gone(data)` when the graph and everything made from it have ended.
    fn keep_with_graph(&self, data: usize, gone: extern "C" fn(*mut c_void)) -> bool {
        graphs::keep_with_graph(self.graph, data, gone).is_ok()
    }
}

impl Drop for OpenCapture {
    fn drop(&mut self) {
        let marked = lock(&self.work).full_order.len();
        FULL_ORDER_COUNT.fetch_sub(marked, Ordering::AcqRel);
    }
}
