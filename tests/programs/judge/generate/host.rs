//! Pinned, registered and plain memory of the host.

use super::maker::Maker;
use super::model::{HostModel, empty, held};
use crate::grammar::Op;

impl Maker {
    pub fn host_memory(&mut self) {
        let Some(slot) = empty(&self.model.hosts) else { return self.host_free() };
        if self.captures_open > 0 {
            return;
        }
        let ctx = self.ctx_id(self.ctx());
        let bytes = self.dice.pick(&[4096_u64, 8192, 65536, 3 << 20]);
        let mut op = self.dice.pick(&[Op::HostAlloc, Op::HostAlloc, Op::HostPlain]);
        if self.shows_little() {
            op = Op::HostPlain;
        }
        match op {
            Op::HostAlloc => {
                let mut flags = self.dice.pick(&[0, 0, 2, 1, PLAINLY]);
                if self.reaches_by_texture() {
                    flags = 0;
                }
                self.say(op, &[slot as u64, bytes, flags]);
            }
            _ => self.say(op, &[slot as u64, bytes]),
        }
        let registered = op == Op::HostPlain && !self.shows_little() && self.dice.chance(70);
        if registered {
            self.say(Op::HostRegister, &[slot as u64]);
        }
        self.model.hosts[slot] = Some(HostModel { registered, ..HostModel::new(ctx, op) });
    }

    fn any_host(&mut self, filled: bool) -> Option<u64> {
        let usable = |slot: &usize| {
            let host = self.model.hosts[*slot].as_ref();
            host.is_some_and(|host| (host.filled || !filled) && host.graphs == 0)
        };
        let slots: Vec<usize> = held(&self.model.hosts).into_iter().filter(usable).collect();
        (!slots.is_empty()).then(|| self.dice.pick(&slots) as u64)
    }

    pub fn host(&self, slot: u64) -> &HostModel {
        self.model.hosts[slot as usize].as_ref().expect("a slot that is held")
    }

    pub fn host_free(&mut self) {
        if self.captures_open > 0 {
            return;
        }
        let Some(slot) = self.any_host(false) else { return };
        let touched = self.host(slot).touched.clone();
        if self.dice.chance(60) {
            self.ensure_host(&touched);
        }
        let ctx = self.host(slot).ctx;
        let outside = self.model.order.outside(&touched, ctx);
        self.ensure_host(&outside);
        let home = self.ctx();
        self.set_ctx_id(ctx);
        if self.host(slot).registered {
            self.say(Op::HostUnregister, &[slot]);
            self.model.order.waited_for_context(ctx);
        }
        if self.host(slot).op == Op::HostAlloc {
            self.model.order.waited_for_context(ctx);
        } else {
            self.ensure_host(&touched);
        }
        self.say(Op::HostFree, &[slot]);
        if self.attaches {
            self.say(Op::HostGone, &[]);
        }
        self.model.hosts[slot as usize] = None;
        self.set_ctx(home);
    }

    /// Registers memory again, which the driver refuses; the first registration remains.
    pub fn register_twice(&mut self) {
        let Some(slot) = self.any_host(false) else { return };
        if self.captures_open == 0 {
            self.say(Op::HostRegister, &[slot]);
            if self.host(slot).op == Op::HostPlain {
                self.model.hosts[slot as usize].as_mut().expect("held").registered = true;
            }
        }
    }

    pub fn host_touched(&mut self, slot: u64, stream: u64, wrote: bool) {
        let lane = self.lane(stream);
        let clock = self.model.order.submit(lane);
        let host = self.model.hosts[slot as usize].as_mut().expect("a slot that is held");
        host.touched.join(&clock);
        if wrote {
            host.written = clock;
            host.filled = true;
        }
    }

    /// Makes the device write host memory, which the host may read at once.
    pub fn write_host(&mut self) {
        let stream = self.any_stream();
        let Some(host) = self.any_host(false) else { return self.host_memory() };
        let touched = self.host(host).touched.clone();
        if !self.ensure(stream, &touched) {
            return;
        }
        let pinned = self.host(host).op == Op::HostAlloc || self.host(host).registered;
        if !pinned && self.captures_open > 0 {
            return;
        }
        let (delay, value) = (self.delay(), self.value());
        match self.any_block(true) {
            Some(block) if self.dice.chance(65) => {
                if !self.ensure_for(block, stream, false) {
                    return;
                }
                let mut how = self.one_of(9);
                if how < 2 && (!pinned || self.reaches_by_texture()) {
                    return;
                }
                if stream == 0 && self.captures_open == 0 && self.dice.chance(30) {
                    how = 9;
                }
                self.say(Op::ToHost, &[host, block, stream, delay, how]);
                self.touched(block, stream, false);
            }
            _ if !pinned || self.reaches_by_texture() => return,
            _ if self.dice.chance(20) => {
                let how = self.dice.below(2) as u64;
                self.say(Op::HostFunction, &[stream, host, value, how]);
            }
            _ => {
                let how = self.one_of(7);
                if !self.host(host).filled && how > 2 {
                    // A single word is not enough to read.
                    self.ensure_host(&touched);
                    self.say(Op::HostWrite, &[host, value]);
                }
                self.say(Op::FillHost, &[host, stream, value, delay, how]);
            }
        }
        self.host_touched(host, stream, true);
        if self.dice.chance(70) {
            self.host_read_of(host);
        }
    }

    pub fn host_read(&mut self) {
        if let Some(host) = self.any_host(true) {
            self.host_read_of(host);
        }
    }

    pub fn host_read_of(&mut self, host: u64) {
        let written = self.host(host).written.clone();
        self.ensure_host(&written);
        self.say(Op::HostRead, &[host]);
        if self.dice.chance(5) && !self.reaches_by_texture() {
            self.say(Op::HostMapped, &[host]);
        }
    }

    pub fn read_host(&mut self) {
        let stream = self.any_stream();
        let Some(host) = self.any_host(false) else { return self.host_memory() };
        let touched = self.host(host).touched.clone();
        if self.dice.chance(60) || !self.host(host).filled {
            self.ensure_host(&touched);
            let value = self.value();
            self.say(Op::HostWrite, &[host, value]);
            let state = self.model.hosts[host as usize].as_mut().expect("a slot that is held");
            state.filled = true;
            state.written = Default::default();
        }
        let written = self.host(host).written.clone();
        if !self.ensure(stream, &written) {
            return;
        }
        let Some(block) = self.any_block(false) else { return };
        if !self.ensure_for(block, stream, true) {
            return;
        }
        let pinned = self.host(host).op == Op::HostAlloc || self.host(host).registered;
        let mut how = if self.reaches_by_texture() { 5 } else { self.one_of(6) };
        if how == 5 && !(pinned && host.is_multiple_of(3) && self.block(block).filled) {
            how = 1;
        }
        if stream == 0 && self.captures_open == 0 && self.dice.chance(30) {
            how = 6;
        }
        if (how == 0 || self.captures_open > 0) && !pinned {
            return;
        }
        let delay = self.delay();
        self.say(Op::FromHost, &[block, host, stream, delay, how]);
        self.touched(block, stream, true);
        self.host_touched(host, stream, false);
    }
}

/// Used in place of flags: selects the function without flags.
const PLAINLY: u64 = 99;
