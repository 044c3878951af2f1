//! Several contexts: creates them, uses them in parallel, destroys and resets them.

use super::maker::{Maker, SIZES, TEMPORARY};
use super::model::{ThreadModel, empty, held};
use crate::grammar::Op;

impl Maker {
    pub fn create_context(&mut self) {
        let Some(slot) = empty(&self.model.ctxs[..CONTEXTS_MAX]) else {
            return self.destroy_context();
        };
        if self.captures_open > 0 {
            return;
        }
        let beyond = self.beyond && self.dice.chance(60);
        self.say(if beyond { Op::CtxBeyond } else { Op::CtxCreate }, &[slot as u64]);
        self.begin_context(slot);
        self.model.threads[self.thread as usize] = Some(ThreadModel { ctx: slot });
        if self.dice.chance(30) {
            self.init_again();
        }
        if self.dice.chance(40) {
            let blocking = self.dice.chance(40);
            self.create_stream(blocking);
        }
        self.do_nothing();
    }

    pub fn do_nothing(&mut self) {
        let stream = self.any_stream();
        self.say(Op::Nothing, &[stream]);
        let lane = self.lane(stream);
        self.model.order.submit(lane);
    }

    pub fn use_context(&mut self) {
        let slots = held(&self.model.ctxs);
        let slot = self.dice.pick(&slots);
        self.set_ctx(slot);
    }

    /// Destroys a context with everything in it, after waiting for other users of its objects.
    pub fn destroy_context(&mut self) {
        let slots: Vec<usize> =
            held(&self.model.ctxs).into_iter().filter(|slot| *slot > 0).collect();
        if slots.is_empty() || self.captures_open > 0 {
            return;
        }
        let slot = self.dice.pick(&slots);
        let id = self.ctx_id(slot);
        self.drop_graphs_of(id);
        self.wait_for_users(id);
        if self.attaches && self.dice.chance(50) {
            self.set_ctx(slot);
            self.say(Op::CtxDetach, &[slot as u64, 1]);
        } else {
            self.set_ctx(0);
            self.say(Op::CtxDestroy, &[slot as u64]);
        }
        self.forget_context(slot, id);
    }

    pub fn reset_primary(&mut self) {
        self.end_primary(Op::CtxReset);
    }

    pub fn end_primary(&mut self, op: Op) {
        if self.captures_open > 0 || self.dice.chance(60) {
            return;
        }
        let id = self.ctx_id(0);
        self.drop_graphs_of(id);
        self.wait_for_users(id);
        self.set_ctx(0);
        self.say(op, &[]);
        self.forget_context(0, id);
        self.begin_context(0);
        self.model.threads[self.thread as usize] = Some(ThreadModel { ctx: 0 });
        self.create_stream(false);
    }

    /// Waits for work of other contexts on objects that end with this one.
    fn wait_for_users(&mut self, id: usize) {
        for slot in held(&self.model.ctxs) {
            self.set_ctx(slot);
            self.say(Op::CtxSync, &[]);
            let other = self.ctx_id(slot);
            self.model.order.waited_for_context(other);
        }
        for slot in held(&self.model.hosts) {
            let Some(host) = self.model.hosts[slot].clone().filter(|host| host.ctx == id) else {
                continue;
            };
            let outside = self.model.order.outside(&host.touched, id);
            self.ensure_host(&outside);
            if host.registered {
                let home = self.ctx();
                self.set_ctx_id(id);
                self.say(Op::HostUnregister, &[slot as u64]);
                self.set_ctx(home);
            }
        }
    }

    fn forget_context(&mut self, slot: usize, id: usize) {
        self.model.order.waited_for_context(id);
        let model = &mut self.model;
        model.ctxs[slot] = None;
        let gone = |ctx: usize| ctx == id;
        model.streams.iter_mut().for_each(|s| empty_if(s, |stream| gone(stream.ctx)));
        model.events.iter_mut().for_each(|e| empty_if(e, |event| gone(event.ctx)));
        model.blocks.iter_mut().for_each(|b| empty_if(b, |block| gone(block.ctx)));
        model.hosts.iter_mut().for_each(|h| empty_if(h, |host| gone(host.ctx)));
        model.graphs.iter_mut().for_each(|g| empty_if(g, |graph| gone(graph.ctx)));
        model.execs.iter_mut().for_each(|x| empty_if(x, |exec| gone(exec.ctx)));
        // These are threads in which the context is current: the next line needs a thread that has
        // one.
        let thread = self.thread;
        for (number, state) in model.threads.iter_mut().enumerate() {
            if let Some(state) = state.as_mut().filter(|state| state.ctx == slot) {
                state.ctx = if number == usize::from(thread) { 0 } else { NOWHERE };
            }
        }
    }

    /// A wait in a green context tells nothing about other work; a later free still waits for that
    /// work.
    pub fn green(&mut self) {
        if self.captures_open > 0 || self.ctx() != 0 {
            return;
        }
        let slot = CONTEXTS_MAX as u64 + 2;
        self.say(Op::GreenCreate, &[slot]);
        self.say(Op::CtxSet, &[0]);
        for _ in 0..1 + self.dice.below(4) {
            self.fill();
            self.set_ctx(0);
            self.say(Op::CtxSet, &[slot]);
            self.say(Op::CtxSync, &[]);
            // While the green context is current, allocated memory belongs to the whole primary
            // context.
            self.say(Op::Alloc, &[TEMPORARY, 65536]);
            self.say(Op::Free, &[TEMPORARY]);
            self.say(Op::CtxSet, &[0]);
            let id = self.ctx_id(0);
            self.model.order.waited_for_context(id);
        }
        self.say(Op::CtxSet, &[0]);
        self.say(Op::CtxDestroy, &[slot]);
    }

    /// Uses and frees memory of one context on a stream of another. Its own context then requests
    /// it again, and waits only for its own work.
    pub fn free_elsewhere(&mut self) {
        let (slots, home) = (held(&self.model.ctxs), self.ctx());
        let other = self.dice.pick(&slots);
        if other == home || self.captures_open > 0 {
            return;
        }
        let bytes = self.dice.pick(&SIZES);
        let Some(slot) = self.allocate_as(bytes, Op::Alloc) else { return };
        self.set_ctx(other);
        let stream = self.any_stream();
        self.fill_on(slot, stream);
        let waits_first = self.dice.chance(50);
        if waits_first {
            self.wait_at(home, other);
        }
        self.free_async(slot, stream);
        if !waits_first {
            self.wait_at(home, other);
        }
        self.set_ctx(home);
        if let Some(slot) = self.allocate_as(bytes, Op::Alloc) {
            let stream = self.any_stream();
            self.fill_on(slot, stream);
        }
    }

    /// Ends memory of one context while another is current, where a kernel runs until the call has
    /// returned: the driver waits for the work of the memory's context.
    pub fn end_beside_another_context(&mut self) {
        let (slots, home) = (held(&self.model.ctxs), self.ctx());
        let other = self.dice.pick(&slots);
        if other == home || self.captures_open > 0 || self.flags_used >= 60 {
            return;
        }
        if self.flags_used == 0 {
            // The memory of the flags ends with the context in which the first one is used.
            self.set_ctx(0);
            self.say(Op::Raise, &[0, 0, 0]);
            self.flags_used = 1;
            self.set_ctx(home);
        }
        let op = self.dice.pick(&[Op::Alloc, Op::AllocManaged, Op::AllocPitch]);
        let bytes = self.dice.pick(&SIZES);
        let Some(slot) = self.allocate_as(bytes, op) else { return };
        self.set_ctx(other);
        let stream = self.create_stream(false);
        let other_id = self.ctx_id(other);
        if self.model.streams[stream as usize].as_ref().is_none_or(|known| known.ctx != other_id) {
            return;
        }
        let (flag, how) = (self.flags_used, self.dice.below(4) as u64);
        self.flags_used += 1;
        self.say(Op::Spin, &[stream, flag, how]);
        let lane = self.lane(stream);
        self.model.order.submit(lane);
        self.free(slot);
        self.say(Op::Raise, &[flag, 0, 0]);
    }

    /// Waits for all work of one context, or frees there, with another context current before and
    /// after.
    fn wait_at(&mut self, ctx: usize, current: usize) {
        self.set_ctx(ctx);
        if self.dice.chance(50) {
            let known = self.model.order.host.clone();
            self.free_a_temporary();
            if self.leaning == 0 {
                self.model.order.host = known;
            }
        } else {
            self.say(Op::CtxSync, &[]);
            let id = self.ctx_id(ctx);
            self.model.order.waited_for_context(id);
        }
        self.set_ctx(current);
    }

    /// Pushes another context for a moment.
    pub fn push_context(&mut self) {
        let slots = held(&self.model.ctxs);
        let (slot, home) = (self.dice.pick(&slots), self.ctx());
        if slot == home || self.captures_open > 0 {
            return;
        }
        self.say(Op::CtxPush, &[slot as u64]);
        self.model.threads[self.thread as usize] = Some(ThreadModel { ctx: slot });
        self.free_a_temporary();
        // A later line may have made another context current in its place.
        self.set_ctx(slot);
        self.say(Op::CtxPop, &[]);
        self.model.threads[self.thread as usize] = Some(ThreadModel { ctx: home });
    }

    /// Initializes the driver again, as any second runtime in the process does.
    pub fn init_again(&mut self) {
        self.say(Op::Init, &[]);
    }

    /// Creates a context and destroys it soon; a program may do so hundreds of times.
    pub fn short_context(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let (slot, home) = (CONTEXTS_MAX as u64, self.ctx());
        self.say(Op::CtxCreate, &[slot]);
        let (block, value) = (TEMPORARY_BLOCK, self.value());
        let bytes = self.dice.pick(&[4096, 1 << 20, 3 << 20]);
        self.say(Op::Alloc, &[block, bytes]);
        self.say(Op::Fill, &[block, 1, value, 0, 0]);
        if self.dice.chance(50) {
            self.say(Op::Free, &[block]);
            self.say(Op::Alloc, &[block, bytes]);
            self.say(Op::Attribute, &[block, 7, 0]);
            self.say(Op::Range, &[block, 5]);
        }
        if self.dice.chance(30) {
            self.say(Op::Free, &[block]);
        }
        self.say(Op::CtxDestroy, &[slot]);
        self.model.threads[self.thread as usize] = Some(ThreadModel { ctx: NOWHERE });
        self.set_ctx(home);
    }

    /// One stream waits for another context's event.
    pub fn modules(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let slot = self.dice.below(4) as u64;
        self.say(Op::ModuleLoad, &[slot]);
        if self.dice.chance(60) {
            self.say(Op::ModuleUnload, &[slot]);
        }
    }
}

fn empty_if<T>(slot: &mut Option<T>, goes: impl Fn(&T) -> bool) {
    if slot.as_ref().is_some_and(goes) {
        *slot = None;
    }
}

pub const CONTEXTS_MAX: usize = 4;
const TEMPORARY_BLOCK: u64 = 40;
/// A slot that holds no context, so that the next use makes another context current.
const NOWHERE: usize = 99;
