//! References to contexts. A thread releases only what it has taken, so no context ends that
//! another thread uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use cachealloc_tests::driver::{Driver, Outcome};

use super::kernels::Kernels;
use super::slots::{Context, Ctx, lock};
use super::{Actor, Player, Seen, code};
use crate::grammar::{Line, Op};

/// The device whose primary context ends with the last thread that has taken it.
const BEYOND: i32 = 1;

/// A thread that takes a reference to the primary context and releases it, over and over.
pub struct Storm {
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Storm {
    fn begin(driver: Arc<Driver>) -> Storm {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            let mut handle = 0;
            while !is_over.load(Ordering::Relaxed)
                && call!(driver, cuDevicePrimaryCtxRetain(&mut handle, 0)).is_ok()
                && call!(driver, cuDevicePrimaryCtxRelease(0)).is_ok()
            {
                std::thread::yield_now();
            }
        });
        Storm { over, thread }
    }
}

impl Player {
    pub fn end_storm(&self) {
        if let Some(Storm { over, thread }) = lock(&self.storm).take() {
            over.store(true, Ordering::Relaxed);
            thread.join().expect("it calls the driver only");
        }
    }
}

impl Actor<'_> {
    pub fn references(&mut self, line: &Line) -> Seen {
        let driver = self.driver();
        match line.op {
            Op::RefTake => {
                let (first, mut handle) = (self.slots().contexts.get(0)?, 0);
                let taken = call!(driver, cuDevicePrimaryCtxRetain(&mut handle, 0));
                if taken.is_ok() {
                    self.player.references.fetch_add(1, Ordering::SeqCst);
                    self.taken.push(first.clone());
                }
                let same = u64::from(handle == first.handle);
                taken.map_or_else(|error| code(Err(error)), |()| Some((0, vec![same])))
            }
            Op::RefGive => {
                // References to a context that has ended ended with it.
                self.taken.retain(|ctx| ctx.alive());
                self.taken.pop()?;
                self.player.references.fetch_sub(1, Ordering::SeqCst);
                let given = call!(driver, cuDevicePrimaryCtxRelease(0));
                let (mut flags, mut active) = (0, 0);
                call!(driver, cuDevicePrimaryCtxGetState(0, &mut flags, &mut active)).ok()?;
                Some((given.err().unwrap_or(0), vec![u64::from(flags), active as u64]))
            }
            Op::RefGiveAll => {
                let old = self.slots().contexts.get(0)?;
                self.player.end_storm();
                for _ in 0..=self.player.references.load(Ordering::SeqCst) {
                    let given = call!(driver, cuDevicePrimaryCtxRelease(0));
                    if given.is_err() {
                        return code(given);
                    }
                }
                self.begin_anew(&old)
            }
            Op::RefStorm => {
                self.player.end_storm();
                if line.arg(0) != 0 {
                    *lock(&self.player.storm) = Some(Storm::begin(self.player.driver.clone()));
                }
                None
            }
            Op::PrimaryFlags => {
                code(call!(driver, cuDevicePrimaryCtxSetFlags(0, line.arg(0) as u32)))
            }
            Op::PrimaryTake => self.take_primary(line.arg(0)),
            Op::PrimaryGive => self.give_primary(line.arg(0), line.arg(1)),
            Op::Rest => {
                std::thread::sleep(std::time::Duration::from_millis(line.arg(0)));
                None
            }
            Op::CtxNone => {
                self.current = None;
                code(call!(driver, cuCtxSetCurrent(0)))
            }
            _ => self.attach(line),
        }
    }

    fn take_primary(&mut self, slot: u64) -> Seen {
        if slot == 0 || !self.slots().contexts.is_free(slot) {
            return None;
        }
        let taken = self.driver().use_device(BEYOND).and_then(|handle| {
            let kernels = Kernels::load(self.driver(), self.player.prints)?;
            Ok(Arc::new(Context { shared: true, ..Context::new(handle, kernels, BEYOND) }))
        });
        if let Ok(ctx) = &taken {
            self.slots().contexts.put(slot, ctx.clone());
            self.current = Some(ctx.clone());
        }
        code(taken.map(drop))
    }

    /// Releases a reference with that context current, or another one, or none.
    fn give_primary(&mut self, slot: u64, how: u64) -> Seen {
        let ctx = self.slots().contexts.get(slot).filter(|ctx| ctx.shared)?;
        let is_current = self.is_current(&ctx);
        if is_current && how == 0 {
            self.nowhere().ok()?;
        }
        ctx.bury();
        let given = call!(self.driver(), cuDevicePrimaryCtxRelease(BEYOND));
        if is_current && how == 1 {
            self.nowhere().ok()?;
        }
        self.leave(&ctx);
        code(given)
    }

    fn is_current(&self, ctx: &Ctx) -> bool {
        self.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, ctx))
    }

    fn nowhere(&self) -> Outcome {
        call!(self.driver(), cuCtxSetCurrent(0))
    }

    /// Adds one user of a context, or removes one; `how` may select all of them.
    fn attach(&mut self, line: &Line) -> Seen {
        let ctx = self.slots().contexts.get(line.arg(0))?;
        if !self.is_current(&ctx) || ctx.green || ctx.shared || line.arg(0) == 0 {
            return None;
        }
        if line.op == Op::CtxAttach {
            let mut handle = 0;
            let attached = call!(self.driver(), cuCtxAttach(&mut handle, 0));
            if attached.is_ok() {
                ctx.attached.fetch_add(1, Ordering::SeqCst);
            }
            return code(attached);
        }
        let more = ctx.attached.load(Ordering::SeqCst);
        if line.arg(1) == 0 {
            if more == 0 {
                return None;
            }
            ctx.attached.fetch_sub(1, Ordering::SeqCst);
            return code(call!(self.driver(), cuCtxDetach(ctx.handle)));
        }
        for _ in 0..=more {
            let detached = call!(self.driver(), cuCtxDetach(ctx.handle));
            if detached.is_err() {
                return code(detached);
            }
        }
        ctx.bury();
        self.leave(&ctx);
        code(Ok(()))
    }
}
