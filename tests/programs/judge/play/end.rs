//! The end of every program: it waits for the program's contexts, and reads everything that the
//! program has written. If another program follows in the same process, it frees what does not end
//! with a context.

use std::sync::atomic::Ordering;

use cachealloc_tests::driver::Outcome;

use super::slots::{BlockKind, HostKind};
use super::{Actor, Player};
use crate::grammar::{Line, Op};

impl Player {
    /// Ends all contexts, and frees whatever outlives them.
    pub fn clear_away(&self) -> Outcome {
        let (driver, slots) = (&self.driver, &self.slots);
        for stream in slots.streams.all() {
            // This ends a capture that the stream has begun, and its graph.
            let _ = call!(driver, cuStreamDestroy(stream.handle));
        }
        for exec in slots.execs.ever() {
            let _ = driver.destroy_executable(exec.handle); // its context may have taken it along
        }
        for graph in slots.graphs.ever() {
            let _ = driver.destroy_graph(graph.handle);
        }
        for ctx in slots.contexts.all() {
            driver.set_context(ctx.handle)?;
            driver.synchronize()?;
        }
        driver.use_device(0)?;
        for block in slots.blocks.ever() {
            match block.kind {
                BlockKind::Plain | BlockKind::Managed => {}
                BlockKind::Ordered => {
                    let _ = driver.free(block.address); // if its pool is still there
                }
                BlockKind::Virtual(handle, size) => {
                    call!(driver, cuMemUnmap(block.address, size))?;
                    call!(driver, cuMemRelease(handle))?;
                    call!(driver, cuMemAddressFree(block.address, size))?;
                }
            }
        }
        for host in slots.hosts.all() {
            let registered = host.registered.load(Ordering::SeqCst);
            if host.kind == HostKind::Plain && registered {
                driver.set_context(host.ctx.handle)?;
                call!(driver, cuMemHostUnregister(host.address))?;
            }
        }
        for ctx in (1..16).filter_map(|slot| slots.contexts.get(slot)) {
            if ctx.shared {
                call!(driver, cuDevicePrimaryCtxReset(ctx.device))?;
                continue;
            }
            match ctx.green {
                true => call!(driver, cuGreenCtxDestroy(ctx.handle))?,
                false => call!(driver, cuCtxDestroy(ctx.handle))?,
            }
        }
        driver.use_device(0)?;
        driver.synchronize()?;
        for pool in slots.pools.ever() {
            call!(driver, cuMemPoolDestroy(pool.handle))?;
        }
        self.restore_default_pool()?;
        call!(driver, cuDevicePrimaryCtxReset(0))
    }

    /// Empties the default pool, and resets its attributes.
    fn restore_default_pool(&self) -> Outcome {
        let (driver, mut pool) = (&self.driver, 0);
        call!(driver, cuDeviceGetDefaultMemPool(&mut pool, 0))?;
        call!(driver, cuMemPoolTrimTo(pool, 0))?;
        for attribute in [RELEASE_THRESHOLD, RESERVED_HIGH, USED_HIGH] {
            call!(driver, cuMemPoolSetAttribute(pool, attribute, &mut 0))?;
        }
        Ok(())
    }
}

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_HIGH: u32 = 6;
const USED_HIGH: u32 = 8;

impl Actor<'_> {
    pub fn look_at_everything(&mut self) {
        if self.player.prints {
            return;
        }
        let streams = self.slots().streams.all();
        let open = streams.iter().filter_map(|stream| stream.capture()).count();
        if open > 0 {
            // A wait would end the capture, which the program left open on purpose.
            return;
        }
        let mut next = self.player.lines;
        let line = |op, slot| Line { thread: 0, op, args: vec![slot] };
        for slot in 0..16 {
            if self.slots().contexts.get(slot).is_some() {
                self.at(&mut next, &line(Op::CtxSet, slot));
                self.at(&mut next, &line(Op::CtxSync, 0));
            }
        }
        for slot in 0..256 {
            let Some(block) = self.slots().blocks.get(slot) else { continue };
            if self.make_current(&block.ctx).is_ok() {
                self.at(&mut next, &line(Op::Read, slot));
            }
        }
        for slot in 0..64 {
            if self.slots().hosts.get(slot).is_some() {
                self.at(&mut next, &line(Op::HostRead, slot));
            }
        }
    }

    fn at(&mut self, next: &mut usize, line: &Line) {
        self.play(*next, line);
        *next += 1;
    }
}
