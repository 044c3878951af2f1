//! Work of one capture: the streams that take part, and what may be reused.

use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::order::reuse::{EdgeUpdate, Look, Reuse};

use crate::config;
use crate::contexts::lookup;
use crate::driver::graphs;
use crate::driver::graphs::Capturing;
use crate::driver::sys::{STREAM_PER_THREAD, StreamHandle};
use crate::graphs::AllocationPoints;
use crate::ordering::programmatic_launch;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::thread;
use crate::state::thread::Thread;

/// Number of streams, in all captures, whose next kernel must not start early.
pub(crate) static FULL_ORDER_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Work of one capture.
pub(crate) struct Work {
    pub over: bool,
    /// Streams in the order in which they joined.
    pub members: Vec<Member>,
    /// Streams whose next kernel must not start early.
    pub full_order: Vec<StreamHandle>,
    pub reuse: Reuse,
    pub allocation_points: AllocationPoints,
}

/// A stream that takes part. Its id was read before it captured: reading it afterwards would end
/// the capture (900, measured).
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub handle: StreamHandle,
    pub id: u64,
    /// For a per-thread default stream: the only thread and context in which the handle means this
    /// stream.
    owner: Option<(usize, &'static Context)>,
}

impl Member {
    pub(crate) fn new(handle: StreamHandle, id: u64) -> Member {
        let own = || Some((thread::with(Thread::number), lookup::current().ok()?));
        Member { handle, id, owner: if handle == STREAM_PER_THREAD { own() } else { None } }
    }

    /// Returns whether this handle means this stream in the calling thread.
    pub(crate) fn is(&self, stream: StreamHandle) -> bool {
        let here = |context| contexts::known(0).is_some_and(|now| core::ptr::eq(now, context));
        let owned = self.owner.is_none_or(|(_, context)| here(context));
        self.handle == stream && self.may_be_asked() && owned
    }

    pub(crate) fn now(&self) -> Option<Capturing> {
        self.in_its_context(|| graphs::capturing(self.handle))?
    }

    /// Returns whether the handle means this stream in the calling thread.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.owner.is_none_or(|(owner, _)| owner == thread::with(Thread::number))
    }

    /// Runs `ask` where the handle means this stream. Returns `None` if it does so nowhere in this
    /// thread.
    fn in_its_context<T>(&self, ask: impl Fn() -> T) -> Option<T> {
        let Some((_, context)) = self.owner else { return Some(ask()) };
        if self.may_be_asked() { context.enter(|| Ok(ask())).ok() } else { None }
    }
}

impl Work {
    pub(crate) fn new(origin: Member) -> Work {
        Work {
            over: false,
            members: vec![origin],
            full_order: Vec::new(),
            reuse: Reuse::new(),
            allocation_points: AllocationPoints::default(),
        }
    }

    /// Returns whether anything was handed out in this capture, so that something can be reused.
    pub(crate) fn is_concerned(&self) -> bool {
        !self.allocation_points.is_empty()
            || self.reuse.waiting_count() != 0
            || self.reuse.has_reused()
    }

    /// Notes that nothing is reused from now on, if an unknown function may have changed the graph
    /// in any way, or if an option forbids it.
    pub(crate) fn note_unseen(&mut self) {
        if !LEDGER.elision.is_allowed() || !config::get().reuse_in_captures {
            self.reuse.becomes_opaque();
        }
    }

    /// Runs `body` on the current graph of the capture, and then adds the edges that its results
    /// depend on. Returns `None` if part of the graph cannot be seen; then nothing is reused from
    /// now on. Memory that was reused before stays ordered.
    pub(crate) fn look<T>(&mut self, body: impl FnOnce(&mut Look) -> T) -> Option<T> {
        self.note_unseen();
        if self.reuse.is_opaque() && !self.reuse.has_reused() {
            return None;
        }
        let now: Option<Vec<Capturing>> = self.members.iter().map(Member::now).collect();
        let Some(now) = now else {
            self.reuse.becomes_opaque();
            return None;
        };
        let mut look = self.reuse.look();
        for (member, now) in self.members.iter().zip(&now) {
            look.stream(member.id, &now.terminals, graphs::edges_into);
        }
        let result = body(&mut look);
        let mends: Vec<EdgeUpdate> =
            self.members.iter().map(|member| look.edge_update(member.id)).collect();
        let mended = mends.into_iter().enumerate().all(|(index, mend)| self.mend(index, mend));
        if !mended {
            self.reuse.becomes_opaque();
        }
        (!self.reuse.is_opaque()).then_some(result)
    }

    fn mend(&mut self, index: usize, mend: EdgeUpdate) -> bool {
        let member = self.members[index];
        let handle = member.handle;
        let done = match &mend {
            EdgeUpdate::Nothing => return true,
            EdgeUpdate::FullOrder => true,
            EdgeUpdate::Set(terminals) => {
                let set = || graphs::set_terminals(handle, terminals);
                member.in_its_context(set) == Some(Ok(()))
            }
        };
        if !self.full_order.contains(&handle) {
            self.full_order.push(handle);
            FULL_ORDER_COUNT.fetch_add(1, Ordering::AcqRel);
            programmatic_launch::block_freed();
        }
        done
    }
}
