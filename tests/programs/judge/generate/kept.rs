//! Pinned memory whose address a kernel stores in memory of the device, where later kernels find
//! it. The first kernel may be launched in a way that hides its arguments.

use super::maker::Maker;
use super::model::{HostModel, empty, held};
use crate::grammar::Op;

/// Number of ways to store an address (`play/kept.rs`).
const WAYS: usize = 15;

impl Maker {
    /// Stores the address of new pinned memory, which no other kernel is passed.
    pub fn keep_address(&mut self) {
        let Some(slot) = empty(&self.model.hosts) else { return self.host_free() };
        if self.captures_open > 0 {
            return;
        }
        let (ctx, stream) = (self.ctx_id(self.ctx()), self.any_stream());
        let (host, how) = (slot as u64, self.dice.below(WAYS) as u64);
        let (bytes, flags) = (self.dice.pick(&[4096_u64, 65536]), self.dice.pick(&[0, PORTABLE]));
        self.say(Op::HostAlloc, &[host, bytes, flags]);
        self.say(Op::Keep, &[host, stream, how]);
        self.model.hosts[slot] = Some(HostModel::new(ctx, Op::HostAlloc));
        self.model.hosts[slot].as_mut().expect("just made").kept = true;
        self.host_touched(host, stream, false);
    }

    /// Writes pinned memory by a kernel that finds its address, and often reads it.
    pub fn fill_found(&mut self) {
        let ctx = self.ctx_id(self.ctx());
        let is_kept = |slot: &usize| {
            let host = self.model.hosts[*slot].as_ref();
            host.is_some_and(|host| host.kept && host.ctx == ctx)
        };
        let slots: Vec<usize> = held(&self.model.hosts).into_iter().filter(is_kept).collect();
        if slots.is_empty() {
            return self.keep_address();
        }
        let (host, stream) = (self.dice.pick(&slots) as u64, self.any_stream());
        let touched = self.host(host).touched.clone();
        if !self.ensure(stream, &touched) {
            return;
        }
        let (value, delay) = (self.value(), self.delay());
        self.say(Op::FillFound, &[host, stream, value, delay]);
        self.host_touched(host, stream, true);
        if self.dice.chance(60) {
            self.host_read_of(host);
        }
    }
}

const PORTABLE: u64 = 1;
