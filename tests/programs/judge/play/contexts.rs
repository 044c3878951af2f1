//! Contexts and modules.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cachealloc_tests::driver::Outcome;

use super::kernels::{Kernels, load_module};
use super::slots::{Context, Ctx, Thing};
use super::{Actor, Player, Seen, code};
use crate::grammar::{Line, Op};

impl Player {
    /// Retains the primary context and makes it current in this thread.
    pub fn open_primary(&self) -> Outcome<Ctx> {
        let handle = self.driver.use_device(0)?;
        self.context(handle, 0, false)
    }

    fn context(&self, handle: u64, device: i32, green: bool) -> Outcome<Ctx> {
        let kernels = Kernels::load(&self.driver, self.prints)?;
        let made = Arc::new(Context { green, ..Context::new(handle, kernels, device) });
        self.befriend(&made)?;
        Ok(made)
    }

    /// Lets kernels of each device access the memory of the other.
    fn befriend(&self, made: &Ctx) -> Outcome {
        // A context that threads take and release may end at any time.
        let beyond = |other: &Ctx| other.device != made.device && !other.shared;
        for other in self.slots.contexts.all().into_iter().filter(beyond) {
            for (from, to) in [(&other, made), (made, &other)] {
                self.driver.set_context(from.handle)?;
                call!(self.driver, cuCtxEnablePeerAccess(to.handle, 0))?;
            }
        }
        self.driver.set_context(made.handle)
    }

    /// Lets kernels of each device also access memory from the other's default pool.
    fn open_pools(&self) -> Outcome {
        for device in [0, 1] {
            let mut pool = 0;
            call!(self.driver, cuDeviceGetDefaultMemPool(&mut pool, device))?;
            // CUmemAccessDesc: the other device reads and writes.
            let access = [1_u32, 1 - device as u32, 3];
            call!(self.driver, cuMemPoolSetAccess(pool, access.as_ptr().cast(), 1))?;
        }
        Ok(())
    }
}

impl Actor<'_> {
    pub fn make_current(&mut self, ctx: &Ctx) -> Outcome {
        self.driver().set_context(ctx.handle)?;
        self.current = Some(ctx.clone());
        Ok(())
    }

    pub fn contexts(&mut self, line: &Line) -> Seen {
        let slot = line.arg(0);
        match line.op {
            Op::Init => code(call!(self.driver(), cuInit(0))),
            Op::CtxCreate => self.create_context(slot, 0),
            Op::CtxBeyond => self.create_context(slot, 1),
            Op::GreenCreate => self.create_green(slot),
            Op::CtxPush => {
                let ctx = self.slots().contexts.get(slot)?;
                let pushed = call!(self.driver(), cuCtxPushCurrent(ctx.handle));
                if pushed.is_ok() {
                    self.below.push(self.current.replace(ctx));
                }
                code(pushed)
            }
            Op::CtxPop => {
                let below = self.below.pop()?;
                self.current = below;
                let mut popped = 0;
                code(call!(self.driver(), cuCtxPopCurrent(&mut popped)))
            }
            Op::CtxSet => {
                let ctx = self.slots().contexts.get(slot)?;
                code(self.make_current(&ctx))
            }
            Op::CtxDestroy => {
                let ctx = self.slots().contexts.get(slot).filter(|ctx| slot != 0 && !ctx.shared)?;
                let ended = match ctx.green {
                    true => call!(self.driver(), cuGreenCtxDestroy(ctx.handle)),
                    false => call!(self.driver(), cuCtxDestroy(ctx.handle)),
                };
                if ended.is_ok() {
                    ctx.bury();
                    self.leave(&ctx);
                }
                code(ended)
            }
            Op::CtxReset => self.reset_primary(),
            Op::CtxSync => code(self.driver().synchronize()),
            Op::ModuleLoad => {
                let ctx = self.current.clone().filter(|_| self.slots().modules.is_free(slot))?;
                let loaded = load_module(self.driver());
                if let Ok(handle) = loaded {
                    self.slots().modules.put(slot, Thing { handle, ctx });
                }
                code(loaded.map(drop))
            }
            _ => {
                let module = self.slots().modules.get(slot)?;
                self.slots().modules.clear(slot);
                code(call!(self.driver(), cuModuleUnload(module.handle)))
            }
        }
    }

    fn create_context(&mut self, slot: u64, device: i32) -> Seen {
        if slot == 0 || !self.slots().contexts.is_free(slot) {
            return None;
        }
        let player = self.player;
        let made = self.driver().create_context(device).and_then(|handle| {
            if device > 0 {
                player.open_pools()?;
            }
            player.context(handle, device, false)
        });
        self.hold_context(slot, made)
    }

    fn create_green(&mut self, slot: u64) -> Seen {
        if slot == 0 || !self.slots().contexts.is_free(slot) {
            return None;
        }
        let (mut green, mut handle, driver) = (0, 0, self.driver());
        let made = call!(driver, cuGreenCtxCreate(&mut green, 0, 0, 1))
            .and_then(|()| call!(driver, cuCtxFromGreenCtx(&mut handle, green)))
            .and_then(|()| driver.set_context(handle))
            .and_then(|()| self.player.context(handle, 0, true));
        self.hold_context(slot, made)
    }

    fn hold_context(&mut self, slot: u64, made: Outcome<Ctx>) -> Seen {
        if let Ok(ctx) = &made {
            self.slots().contexts.put(slot, ctx.clone());
            self.current = Some(ctx.clone());
        }
        code(made.map(drop))
    }

    /// Ends the primary context with everything in it, and takes a new one.
    fn reset_primary(&mut self) -> Seen {
        let old = self.slots().contexts.get(0)?;
        self.player.end_storm();
        let ended = call!(self.driver(), cuDevicePrimaryCtxReset(0));
        if ended.is_err() {
            return code(ended);
        }
        // References taken before have to be released, too.
        let before = self.player.references.load(Ordering::SeqCst) + 1;
        let begun = self.begin_anew(&old);
        self.player.references.fetch_add(before, Ordering::SeqCst);
        begun
    }

    /// Starts again after the primary context has ended.
    pub fn begin_anew(&mut self, old: &Ctx) -> Seen {
        old.bury();
        self.player.references.store(0, Ordering::SeqCst);
        *super::slots::lock(&self.player.flags) = 0;
        let made = self.player.open_primary();
        if let Ok(ctx) = &made {
            self.slots().contexts.put(0, ctx.clone());
            self.current = Some(ctx.clone());
        }
        code(made.map(drop))
    }

    /// Updates the player after a context has ended. The primary context, to which a program always
    /// returns, is then current.
    pub fn leave(&mut self, gone: &Ctx) {
        if self.current.as_ref().is_some_and(|ctx| Arc::ptr_eq(ctx, gone)) {
            self.current = None;
            if let Some(first) = self.slots().contexts.get(0) {
                // The next line reports the result.
                let _ = self.make_current(&first);
            }
        }
    }
}
