//! The same program under our rules: the real ledger, routes and captures over a cache that is as
//! greedy as possible. The cache hands out the most recently freed address that may be handed out
//! at all.

use super::native::{
    BLOCKS_MAX, Bytes, CONTEXTS, ELSEWHERE, LEGACY, Order, Set, WORKS_MAX, context_of,
};
use crate::order::captures::{Capture, Captures};
use crate::order::deferral::{ANY_STREAM, Admission, DeferralState};
use crate::order::deferring_context::DeferringContext;
use crate::order::exclusive::Exclusive;
use crate::order::ledger::{AfterBarrier, ContextCoverage, FreeInput, Ledger, SubmissionReading};
use crate::order::pending::{BarrierNumber, PendingBarriers, TrackedBarrier};
use crate::order::route::{
    FreeState, Mode, Route, StreamRoute, free_async_block_plainly, free_context_block,
    free_on_stream,
};
use crate::order::submission_counters::{Coverage, Lane, SubmissionCounters};
use crate::order::synced_streams::SyncedStreams;
use crate::order::visible::{Elision, UntrackedSubmission, Visible, VisibleCause};
use crate::rules::{Rule, rule_holds};

/// An effect that the program could see, but not on the plain driver.
pub type Violation = &'static str;

/// Configuration of our rules.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub mode: Mode,
    pub elision: bool,
    pub barrier_calls: bool,
    /// Whether the program orders its contexts itself: `across_contexts:barrier`.
    pub promised: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    Held,
    Free,
    /// Not reusable until these are complete.
    Parked(Set),
    /// Not reusable, and no event recorded yet.
    ParkedForBarrier,
    /// Reusable for the stream with this id; for others when these are complete.
    Tagged(u64, Set),
}

#[derive(Clone, Copy)]
struct Address {
    place: Whereabouts,
    freed_at: u32,
    bytes: Bytes,
    /// Accesses by earlier owners of the address.
    old: Bytes,
}

/// Handle of this stream in the stream state.
fn handle(stream: usize) -> u64 {
    stream as u64 + 1
}

/// State of the program under our rules.
pub struct Ours {
    pub order: Order,
    setting: Setting,
    ledger: Ledger,
    covers: [ContextCoverage; CONTEXTS],
    captures: Captures,
    debts: [TrackedBarrier; 2],
    addresses: [Address; BLOCKS_MAX],
    address_count: usize,
    address_of: [usize; BLOCKS_MAX],
    frees: u32,
    /// Work that the barrier's event stands for, by barrier number.
    recorded: [Set; WORKS_MAX],
    pinned: Bytes,
    texture: Bytes,
    /// Work that is complete in fact, though nothing waited for it.
    over: Set,
    /// Items that are no work: the places of allocations and frees in their streams.
    places: Set,
    /// Work that the deferred wait stands for.
    owed: Option<(Set, BarrierNumber)>,
    behind: SyncedStreams,
}

impl Ours {
    pub fn new(setting: Setting) -> Ours {
        let address = Address {
            place: Whereabouts::Free,
            freed_at: 0,
            bytes: Bytes::default(),
            old: Bytes::default(),
        };
        let ours = Ours {
            order: Order::default(),
            setting,
            ledger: Ledger::new(),
            covers: [ContextCoverage::new(), ContextCoverage::new()],
            captures: Captures::new(),
            debts: [TrackedBarrier::new(); 2],
            addresses: [address; BLOCKS_MAX],
            address_count: 0,
            address_of: [0; BLOCKS_MAX],
            frees: 0,
            recorded: [0; WORKS_MAX],
            pinned: Bytes::default(),
            texture: Bytes::default(),
            over: 0,
            places: 0,
            owed: None,
            behind: SyncedStreams::new(),
        };
        if !setting.elision {
            ours.ledger.elision.ends(UntrackedSubmission::UnknownFunction);
        }
        ours
    }

    /// Returns a copy: the parts with atomics deliberately have no `Clone`.
    pub fn copy(&self) -> Ours {
        let counters = |counters: &SubmissionCounters| {
            SubmissionCounters::at(counters.begun(), counters.ended())
        };
        let cover = |cover: &Coverage| Coverage::at(cover.covered());
        let covers = |covers: &ContextCoverage| {
            let (taken, noted, complete) = covers.pending_barriers.parts();
            ContextCoverage {
                ordered: cover(&covers.ordered),
                waited: cover(&covers.waited),
                host_visible: cover(&covers.host_visible),
                pending_barriers: PendingBarriers::at(taken, noted, complete),
            }
        };
        let (shown, submitter) = self.ledger.exclusive.parts();
        Ours {
            ledger: Ledger {
                submitted: counters(&self.ledger.submitted),
                host_visible: counters(&self.ledger.host_visible),
                exclusive: Exclusive::at(shown, submitter),
                visible: Visible::at(self.ledger.visible.causes()),
                elision: Elision::at(self.ledger.elision.causes()),
                deferral: DeferralState::at(self.ledger.deferral.state()),
                deferring_context: DeferringContext::new(),
            },
            covers: [covers(&self.covers[0]), covers(&self.covers[1])],
            captures: self.captures.clone(),
            ..*self
        }
    }

    pub fn every_kernel_visible(&self) -> bool {
        self.ledger.visible.every_kernel()
    }

    pub fn sees_everything(&self) -> bool {
        self.ledger.elision.is_allowed()
    }

    pub fn causes(&self) -> u32 {
        self.ledger.visible.causes()
    }

    pub fn note_visible(&self, cause: VisibleCause) {
        self.ledger.note_visible(cause);
    }

    /// Wraps every call of class submit or order on a stream. `call` changes the order.
    pub fn submits<T>(
        &mut self,
        stream: usize,
        look: bool,
        call: impl FnOnce(&mut Order) -> T,
    ) -> Result<T, Violation> {
        let context = context_of(stream);
        if self.setting.promised {
            self.ledger.begin(look, Lane::Shared);
        } else if self.ledger.submits(context as u64, look) {
            for context in 0..CONTEXTS {
                self.pay(context);
            }
            self.ledger.exclusive.waited();
        }
        let handle = handle(stream);
        while !self.ledger.deferral.can_proceed(handle) {
            match (self.ledger.deferral.admission(handle), self.owed) {
                (Admission::Proceed, _) => break,
                (Admission::FlushDeferred, Some(_)) if handle == ANY_STREAM => {
                    self.put_in_wait()?
                }
                (_, Some((owed, number))) => {
                    self.may_record()?;
                    let known = self.behind.is(handle, number);
                    if !known && rule_holds(Rule::StreamsWaitForThemselves) {
                        self.order.stream_behind(stream, owed);
                        self.behind.waits(handle, number);
                    }
                    self.ledger.deferral.flushed_per_stream();
                    break;
                }
                (_, None) => self.ledger.deferral.flush_not_needed(),
            }
        }
        let answer = call(&mut self.order);
        self.ledger.submitted(look);
        Ok(answer)
    }

    /// Submits the deferred wait.
    fn put_in_wait(&mut self) -> Result<(), Violation> {
        if let Some((owed, _)) = self.owed.take() {
            self.may_record()?;
            self.order.come_behind(0, owed);
            self.ledger.deferral.flushed();
        }
        Ok(())
    }

    pub fn recreate(&mut self, stream: usize) -> Result<(), Violation> {
        let owes = self.ledger.deferral.is(handle(stream))
            || self.ledger.deferral.is_deferred_per_stream();
        if owes && rule_holds(Rule::EndedStreamFlushes) {
            self.put_in_wait()?;
            self.ledger.deferral.flushed();
        }
        self.order.recreate(stream);
        Ok(())
    }

    /// Takes the place of an allocation or a free in its stream. It submits nothing and counts no
    /// submission.
    pub fn place(&mut self, stream: usize) -> (Set, Set) {
        let (place, before) = self.order.place(stream);
        self.places |= place;
        (place, before)
    }

    /// Waits for the last pending barrier, as a teardown does.
    pub fn pay(&mut self, context: usize) {
        if let Some(number) = self.covers[context].pending() {
            self.order.wait(self.recorded[number.0 as usize]);
            self.covers[context].pending_barriers.complete(number);
        }
    }

    pub fn sync_context(&mut self) {
        let seen = self.ledger.before_barrier(&self.covers[0]);
        self.order.wait(self.order.all[0]);
        self.covers[0].waited(seen);
        self.give_event_to_parked();
    }

    pub fn time_passes(&mut self) {
        self.over |= self.order.all[0] | self.order.all[1];
    }

    pub fn access(
        &mut self,
        (work, before): (Set, Set),
        block: usize,
        write: bool,
    ) -> Result<(), Violation> {
        let before = before | self.over;
        let relaxed = self.setting.mode == Mode::Relaxed;
        let address = &mut self.addresses[self.address_of[block]];
        let seen_by_all = if relaxed { address.old } else { address.bytes };
        if seen_by_all.conflicts(write) & !before != 0 {
            return Err("two unordered accesses to one address");
        }
        address.bytes.add(work, write);
        Ok(())
    }

    pub fn access_pinned(&mut self, work: Set, write: bool) {
        self.pinned.add(work, write);
    }

    pub fn use_texture(&mut self, work: Set) {
        self.texture.add(work, false);
    }

    pub fn host_access(&self, write: bool) -> Result<(), Violation> {
        self.keeps(self.pinned.conflicts(write), "the host meets unfinished work")
    }

    pub fn destroy_texture(&mut self) -> Result<(), Violation> {
        self.pay(0);
        self.keeps(self.texture.readers, "torn down while in use")
    }

    pub fn query(&mut self, event: usize, thread: usize) -> Result<(), Violation> {
        if self.order.events[event] & !self.order.done != 0
            && let Some((context, number)) = self.debts[thread].tracked()
            && self.covers[context as usize].pending_barriers.is_pending(number)
        {
            self.order.wait(self.recorded[number.0 as usize]);
            self.covers[context as usize].pending_barriers.complete(number);
            self.debts[thread].clear();
        }
        self.keeps(self.order.events[event], "a query answers not ready")
    }

    fn keeps(&self, works: Set, otherwise: Violation) -> Result<(), Violation> {
        let relaxed = self.setting.mode == Mode::Relaxed;
        if works & !self.places & !self.order.done == 0 || relaxed {
            Ok(())
        } else {
            Err(otherwise)
        }
    }

    pub fn begin_capture(&mut self, stream: usize) -> Result<(), Violation> {
        if rule_holds(Rule::CaptureFlushesFirst) {
            self.put_in_wait()?;
        }
        let stream_id = stream as u64;
        self.captures.begin(Capture { stream_id, stream_handle: stream_id, context_id: 0 });
        Ok(())
    }

    pub fn end_capture(&mut self, stream: usize) {
        self.captures.end(stream as u64);
    }

    /// Gives an address to a new block: the one freed last that may be taken. `stream_id` is set
    /// for `cuMemAllocAsync` on that stream.
    pub fn alloc(&mut self, block: usize, stream_id: Option<u64>) {
        self.record_for_parked();
        let over = self.over | self.order.done;
        let complete = |works: Set| works & !over == 0;
        let may_take = |address: &Address| match address.place {
            Whereabouts::Held | Whereabouts::ParkedForBarrier => false,
            Whereabouts::Free => true,
            Whereabouts::Parked(works) => complete(works),
            Whereabouts::Tagged(id, works) => stream_id == Some(id) || complete(works),
        };
        let found = (0..self.address_count)
            .filter(|&at| may_take(&self.addresses[at]))
            .max_by_key(|&at| self.addresses[at].freed_at);
        let at = found.unwrap_or(self.address_count);
        self.address_count = self.address_count.max(at + 1);
        self.addresses[at].place = Whereabouts::Held;
        self.addresses[at].old = self.addresses[at].bytes;
        self.address_of[block] = at;
    }

    /// Records one context event for all parked blocks, as the first ordinary call after the
    /// captures does.
    fn record_for_parked(&mut self) {
        if !self.captures.is_empty() || !self.setting.barrier_calls {
            return;
        }
        self.give_event_to_parked();
    }

    fn give_event_to_parked(&mut self) {
        for address in &mut self.addresses {
            if address.place == Whereabouts::ParkedForBarrier {
                address.place = Whereabouts::Parked(self.order.all[0]);
            }
        }
    }

    fn put(&mut self, block: usize, place: Whereabouts) {
        self.frees += 1;
        let address = &mut self.addresses[self.address_of[block]];
        assert!(address.place == Whereabouts::Held, "freed twice");
        address.place = place;
        address.freed_at = self.frees;
    }

    fn facts(&self) -> FreeState {
        let situation = FreeInput {
            mode: self.setting.mode,
            context_id: 0,
            capturing: !self.captures.is_empty(),
            barrier_calls: self.setting.barrier_calls,
            in_driver_callback: false,
        };
        self.ledger.facts(&self.covers[0], situation)
    }

    /// Models `cuMemFree`.
    pub fn free(
        &mut self,
        block: usize,
        asynchronous: bool,
        thread: usize,
    ) -> Result<(), Violation> {
        let facts = self.facts();
        let over = self.ledger.tracked_is_over(&self.covers[0]);
        assert_eq!(over, facts.waited_quiet, "{facts:?}");
        let route = match asynchronous {
            true => free_async_block_plainly(&facts),
            false => free_context_block(&facts),
        };
        let place = match route {
            Route::Publish => {
                if let Some(number) = self.covers[0].pending() {
                    self.debts[thread].track(0, number);
                }
                Whereabouts::Free
            }
            Route::Barrier => self.barrier(thread)?,
            Route::Wait => {
                self.may_record()?;
                let seen = self.ledger.before_barrier(&self.covers[0]);
                self.order.wait(self.order.all[0]);
                self.covers[0].waited(seen);
                Whereabouts::Free
            }
            Route::WaitNatively => {
                self.sync_context();
                Whereabouts::Free
            }
            Route::ParkOnEvent => {
                self.may_record()?;
                Whereabouts::Parked(self.order.all[0])
            }
            Route::ParkForBarrier => Whereabouts::ParkedForBarrier,
        };
        self.put(block, place);
        let strict = self.setting.mode == Mode::Strict && !asynchronous;
        if strict && self.order.all[0] & !self.places & !self.order.done != 0 {
            return Err("a strict free returned before the work");
        }
        Ok(())
    }

    /// Models `cuMemFreeAsync`. `stream_prefix` is the work that an event recorded there stands
    /// for. `elsewhere` is whether the stream belongs to another context than the block.
    pub fn free_async(&mut self, block: usize, stream: usize, stream_id: u64) {
        let (stream_prefix, elsewhere) = (self.order.prefix(stream), stream == ELSEWHERE);
        let route = free_on_stream(&self.facts(), elsewhere);
        // An event on the legacy stream is enough (measured).
        if route == StreamRoute::Tag && (stream == LEGACY || rule_holds(Rule::FreeJoinsLegacy)) {
            self.order.join(stream);
        }
        let place = match route {
            StreamRoute::Publish => Whereabouts::Free,
            StreamRoute::Tag if elsewhere => Whereabouts::Parked(stream_prefix),
            StreamRoute::Tag => Whereabouts::Tagged(stream_id, stream_prefix),
            StreamRoute::ParkForBarrier => Whereabouts::ParkedForBarrier,
        };
        self.put(block, place);
    }

    fn barrier(&mut self, thread: usize) -> Result<Whereabouts, Violation> {
        self.may_record()?;
        let seen: SubmissionReading = self.ledger.before_barrier(&self.covers[0]);
        let number = seen.number();
        self.recorded[number.0 as usize] = self.order.all[0];
        let exclusive = self.ledger.exclusive.is_exclusive(0) && !self.setting.promised;
        // Where several streams have work, both choices are correct: alternate between them.
        let each = || number.0 % 2 == 1 && self.ledger.may_defer_per_stream();
        if exclusive && (self.ledger.may_defer() || each()) {
            self.owed = Some((self.order.all[0], number));
        } else {
            self.order.barrier(0);
            self.owed = None;
            self.ledger.deferral.clear_deferred();
            self.ledger.wait_submitted(seen, Lane::Own);
        }
        let after = self.ledger.barrier_is_in(&self.covers[0], seen, 0);
        self.debts[thread].track(0, number);
        if after == AfterBarrier::WaitFirst {
            self.order.wait(self.recorded[number.0 as usize]);
            self.covers[0].waited(seen);
        }
        Ok(Whereabouts::Free)
    }

    fn may_record(&self) -> Result<(), Violation> {
        if !self.setting.barrier_calls {
            return Err("a barrier without the calls for it");
        }
        if self.captures.is_empty() { Ok(()) } else { Err("a barrier kills a capture") }
    }
}
