//! The captures that are open: who began them, which streams take part, and what they may use again.
//!
//! Note [Whose capture]. An allocation belongs to the capture that its thread began last, in whatever
//! mode, and whatever mode the thread has changed to meanwhile. A thread that began none belongs to a
//! global capture of another thread, unless its own mode says otherwise: natively its call would end
//! that capture, so no program that works natively makes it, and what it allocates there is for
//! captured work (a framework's backward pass runs in a thread of its own). All other calls are as if
//! nothing captured. Only captures on streams of the current context count.
//!
//! A capture's lock is held from the first question about it to the last change: its end waits for
//! that, so that nobody asks about a graph that the program has got.

use core::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cachealloc_core::order::reuse::{Look, Mend, Reuse};
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{IdleMark, PrivatePool};

use crate::config;
use crate::driver::api;
use crate::driver::graphs::{self, Capturing};
use crate::driver::sys::{
    CAPTURE_MODE_GLOBAL, GraphHandle, STREAM_PER_THREAD, SUCCESS, StreamHandle,
};
use crate::runtime::contexts::Context;
use crate::runtime::private_pools::Births;
use crate::runtime::thread::{self, Thread};
use crate::runtime::{LEDGER, captures, early_start, lock, pool_life};

/// One capture, from its begin to its end.
pub struct OpenCapture {
    origin: Member,
    thread: usize,
    /// Other threads' calls are forbidden by it, too.
    global: bool,
    /// The driver's number for it.
    number: u64,
    pub graph: GraphHandle,
    pub context: &'static Context,
    /// When it began.
    pub begun: IdleMark,
    /// Its memory, the newest last.
    pools: Mutex<Vec<PrivatePool>>,
    work: Mutex<Work>,
}

/// What is known of a capture's work.
pub struct Work {
    over: bool,
    /// In the order in which they joined.
    members: Vec<Member>,
    /// Streams whose next kernel must not start early.
    full_order: Vec<StreamHandle>,
    pub reuse: Reuse,
    /// The newest pool serves what comes after `reuse` has turned opaque: nothing in it was ever
    /// found to be free again.
    sealed: bool,
    pub births: Births,
}

/// A stream that takes part. Its id was asked before it captured: afterwards that would end the
/// capture (900, measured).
#[derive(Clone, Copy)]
pub struct Member {
    handle: StreamHandle,
    pub id: u64,
    /// The only thread to which the handle means this stream: a default stream of its own.
    owner: Option<usize>,
}

static OPEN: Mutex<Vec<Arc<OpenCapture>>> = Mutex::new(Vec::new());
/// Streams of all captures whose next kernel must not start early.
static FULL_ORDER_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A capture has begun on this stream, in this mode.
pub fn begun(stream: StreamHandle, stream_id: u64, context: &'static Context, mode: u32) {
    if !graphs::has_capture_info() {
        return;
    }
    let Some(Capturing { number, graph, .. }) = graphs::capturing(stream) else { return };
    let origin = Member::new(stream, stream_id);
    let begun = lock(&context.allocator).idle_mark();
    let capture = OpenCapture {
        origin,
        thread: thread::with(Thread::number),
        global: mode == CAPTURE_MODE_GLOBAL,
        number,
        graph,
        context,
        begun,
        pools: Mutex::new(Vec::new()),
        work: Mutex::new(Work {
            over: false,
            members: vec![origin],
            full_order: Vec::new(),
            reuse: Reuse::new(),
            sealed: false,
            births: Births::default(),
        }),
    };
    lock(&OPEN).push(Arc::new(capture));
}

/// Runs the real End of the capture that began on this stream; nobody asks about it meanwhile.
pub fn ending<T>(stream: StreamHandle, real: impl FnOnce() -> T) -> T {
    let origin = |capture: &&Arc<OpenCapture>| capture.origin.is(stream);
    let capture = lock(&OPEN).iter().find(origin).cloned();
    let mut work = capture.as_deref().map(|capture| lock(&capture.work));
    let result = real();
    if let (Some(capture), Some(work)) = (&capture, &mut work) {
        work.over = !capture.is_active();
        if work.over && !rule_holds(Rule::PoolLivesWithGraph) {
            lock(&capture.pools).iter().for_each(|pool| pool_life::close(capture.context, *pool));
        }
    }
    result
}

/// Only captures that began on these streams still run.
pub fn keep(runs: impl Fn(u64) -> bool) {
    lock(&OPEN).retain(|capture| runs(capture.origin.id));
}

/// The capture that a call of this thread belongs to; see Note [Whose capture].
pub fn of_call(thread: &Thread, context: &Context) -> Option<Arc<OpenCapture>> {
    let open = lock(&OPEN);
    let here = |capture: &&Arc<OpenCapture>| core::ptr::eq(capture.context, context);
    let number = thread.number();
    let own = open.iter().rfind(|capture| here(capture) && capture.thread == number);
    if own.is_some() {
        return own.cloned();
    }
    let global = open.iter().rfind(|capture| here(capture) && capture.global);
    let global = global.filter(|capture| capture.origin.may_be_asked()).cloned();
    drop(open);
    global.filter(|_| api::capture_mode() == CAPTURE_MODE_GLOBAL)
}

/// The open capture that this stream takes part in, and the stream there.
pub fn of_stream(stream: StreamHandle) -> Option<(Arc<OpenCapture>, Member)> {
    let captures = lock(&OPEN).clone();
    captures.into_iter().find_map(|capture| {
        let member = lock(&capture.work).members.iter().find(|member| member.is(stream)).copied();
        Some((capture, member?))
    })
}

/// The open capture with this memory.
pub fn of_pool(pool: PrivatePool) -> Option<Arc<OpenCapture>> {
    lock(&OPEN).iter().find(|capture| lock(&capture.pools).contains(&pool)).cloned()
}

/// A stream is about to wait for an event, and may join a capture by that.
pub fn may_join(stream: StreamHandle) -> Option<Member> {
    let mut id = 0;
    let free = !lock(&OPEN).is_empty() && !captures::is_capturing(stream);
    (free && api::stream_get_id(stream, &mut id) == SUCCESS).then(|| Member::new(stream, id))
}

/// It has waited.
pub fn waited(member: Member) {
    let Some(Capturing { number, .. }) = graphs::capturing(member.handle) else { return };
    let capture = lock(&OPEN).iter().find(|capture| capture.number == number).cloned();
    let Some(capture) = capture else { return };
    let Some(mut work) = capture.enter() else { return };
    work.members.push(member);
    // What was used again before must come before what this stream captures.
    if work.is_concerned() {
        work.look(|_| ());
    }
}

/// A stream is about to be destroyed.
pub fn leaves(stream: StreamHandle) {
    let Some((capture, member)) = of_stream(stream) else { return };
    let Some(mut work) = capture.enter() else { return };
    if work.is_concerned() && work.look(|_| ()).is_some() {
        work.reuse.leaves(member.id, graphs::edges_into);
    }
    work.members.retain(|known| known.id != member.id);
}

/// Somebody changes nodes or edges by hand, in this graph or in one that is not known.
pub fn edited(graph: Option<GraphHandle>) {
    let captures = lock(&OPEN).clone();
    let concerned = |capture: &&Arc<OpenCapture>| graph.is_none_or(|graph| graph == capture.graph);
    captures.iter().filter(concerned).for_each(|capture| lock(&capture.work).reuse.turns_opaque());
}

/// The program has set what this stream's next node comes after. What was used again before must
/// come before that, too.
pub fn terminals_set(stream: StreamHandle) {
    let Some((capture, _)) = of_stream(stream) else { return };
    let Some(mut work) = capture.enter() else { return };
    if work.is_concerned() {
        work.look(|_| ());
    }
}

/// Whether the next kernel on this stream must not start early. Asked once for each such mark.
pub fn takes_full_order(stream: StreamHandle) -> bool {
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

impl OpenCapture {
    /// For a call that belongs to it. None: it has ended, or died.
    pub fn enter(&self) -> Option<MutexGuard<'_, Work>> {
        let work = lock(&self.work);
        (!work.over && self.is_active()).then_some(work)
    }

    fn is_active(&self) -> bool {
        self.origin.may_be_asked()
            && graphs::capturing(self.origin.handle).is_some_and(|now| now.number == self.number)
    }

    /// The pool to serve it from. `open` makes one.
    pub fn pool(
        &self,
        work: &mut Work,
        open: impl FnOnce() -> Option<PrivatePool>,
    ) -> Option<PrivatePool> {
        let newest = lock(&self.pools).last().copied();
        if let Some(newest) = newest.filter(|_| work.sealed || !work.reuse.is_opaque()) {
            return Some(newest);
        }
        let pool = open()?;
        work.sealed = work.reuse.is_opaque();
        lock(&self.pools).push(pool);
        Some(pool)
    }

    /// Has `gone(data)` called when the graph and all that is made from it are gone.
    pub fn keep_with_graph(&self, data: usize, gone: extern "C" fn(*mut c_void)) -> bool {
        graphs::keep_with_graph(self.graph, data, gone) == SUCCESS
    }
}

impl Drop for OpenCapture {
    fn drop(&mut self) {
        let marked = lock(&self.work).full_order.len();
        FULL_ORDER_COUNT.fetch_sub(marked, Ordering::AcqRel);
    }
}

impl Member {
    fn new(handle: StreamHandle, id: u64) -> Member {
        let own = handle == STREAM_PER_THREAD;
        Member { handle, id, owner: own.then(|| thread::with(Thread::number)) }
    }

    fn is(&self, stream: StreamHandle) -> bool {
        self.handle == stream && self.may_be_asked()
    }

    fn now(&self) -> Option<Capturing> {
        self.may_be_asked().then(|| graphs::capturing(self.handle)).flatten()
    }

    /// Whether the handle means this stream in the calling thread.
    fn may_be_asked(&self) -> bool {
        self.owner.is_none_or(|owner| owner == thread::with(Thread::number))
    }
}

impl Work {
    /// Whether anything was handed out for this capture, so that something can be used again.
    pub fn is_concerned(&self) -> bool {
        !self.births.is_empty() || self.reuse.waiting_count() != 0 || self.reuse.has_reused()
    }

    /// Looks at the capture as it is now, and does what keeps true what was found. None: not all of it
    /// can be seen, and from now on nothing is used again. What was before stays in order all the same.
    pub fn look<T>(&mut self, body: impl FnOnce(&mut Look) -> T) -> Option<T> {
        // A function that we do not know may have done anything to it.
        if !LEDGER.skipping.is_allowed() || !config::get().reuse_in_captures {
            self.reuse.turns_opaque();
        }
        if self.reuse.is_opaque() && !self.reuse.has_reused() {
            return None;
        }
        let now: Option<Vec<Capturing>> = self.members.iter().map(Member::now).collect();
        let Some(now) = now else {
            self.reuse.turns_opaque();
            return None;
        };
        let mut look = self.reuse.look();
        for (member, now) in self.members.iter().zip(&now) {
            look.stream(member.id, &now.terminals, graphs::edges_into);
        }
        let result = body(&mut look);
        let mends: Vec<Mend> = self.members.iter().map(|member| look.mend(member.id)).collect();
        let mended = mends.into_iter().enumerate().all(|(index, mend)| self.mend(index, mend));
        if !mended {
            self.reuse.turns_opaque();
        }
        (!self.reuse.is_opaque()).then_some(result)
    }

    fn mend(&mut self, index: usize, mend: Mend) -> bool {
        let handle = self.members[index].handle;
        let done = match &mend {
            Mend::Nothing => return true,
            Mend::FullOrder => true,
            Mend::Set(terminals) => graphs::set_terminals(handle, terminals) == SUCCESS,
        };
        if !self.full_order.contains(&handle) {
            self.full_order.push(handle);
            FULL_ORDER_COUNT.fetch_add(1, Ordering::AcqRel);
            early_start::block_freed();
        }
        done
    }
}
