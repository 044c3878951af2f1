//! Device memory: frees, pools, arrays, textures. Requests for blocks are in `request.rs`.

use std::sync::atomic::Ordering;

use cachealloc_tests::driver::Outcome;

use super::request::ACCESS_NONE;
use super::slots::{Array, BlockKind, Thing};
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn memory(&mut self, index: usize, line: &Line) -> Seen {
        let slot = line.arg(0);
        match line.op {
            Op::Free => self.free(slot),
            Op::FreeAsync => self.free_async(slot, line.arg(1)),
            Op::Revoke => {
                let block = self.slots().blocks.get(slot)?;
                let BlockKind::Virtual(_, size) = block.kind else { return None };
                block.closed.store(true, Ordering::SeqCst);
                code(self.set_access(block.address, size, ACCESS_NONE))
            }
            Op::ArrayCreate | Op::ArrayDestroy => self.arrays(index, line),
            Op::PoolCreate | Op::PoolDestroy | Op::PoolTrim | Op::PoolKeep => self.pools(line),
            Op::TextureCreate | Op::TextureDestroy => self.textures(line),
            _ => self.request_block(index, line),
        }
    }

    fn free(&mut self, slot: u64) -> Seen {
        let block = self.slots().blocks.get(slot)?;
        if self.player.options.cached && block.was_captured() {
            // A caching allocator keeps the block for its graph.
            self.slots().blocks.clear(slot);
            return Some((0, Vec::new()));
        }
        if block.is_named() && !self.player.keeps_for_graphs {
            // The driver itself would allow the free, but the graph could not be launched any more.
            return None;
        }
        self.slots().blocks.clear(slot);
        let freed = self.as_caches_do(|actor| actor.give_back(&block, None));
        if freed.is_err() {
            self.slots().blocks.put(slot, block);
        }
        code(freed)
    }

    fn free_async(&mut self, slot: u64, stream: u64) -> Seen {
        let (block, stream) = (self.slots().blocks.get(slot)?, self.stream(stream)?);
        let in_capture = stream.capture().is_some();
        // Measured: the driver refuses it for managed memory (801).
        let refused = matches!(block.kind, BlockKind::Virtual(..) | BlockKind::Managed);
        if refused || block.is_named() && !in_capture {
            return None;
        }
        self.slots().blocks.clear(slot);
        let freed = self.driver().free_async(block.address, stream.handle);
        if freed.is_err() {
            self.slots().blocks.put(slot, block);
        }
        code(freed)
    }

    fn arrays(&mut self, index: usize, line: &Line) -> Seen {
        let slot = line.arg(0);
        if line.op == Op::ArrayDestroy {
            let array = self.slots().arrays.get(slot)?;
            self.slots().arrays.clear(slot);
            return code(call!(self.driver(), cuArrayDestroy(array.handle)));
        }
        let (width, height) = (line.arg(1) as usize, line.arg(2) as usize);
        let ctx = self.current.clone().filter(|ctx| ctx.alive())?;
        if !self.slots().arrays.is_free(slot) || width < 16 || height == 0 {
            return None;
        }
        // CUDA_ARRAY_DESCRIPTOR: one channel of 32 bits.
        let (mut handle, description) = (0, [width as u64, height as u64, 3 | 1 << 32]);
        let made = call!(self.driver(), cuArrayCreate(&mut handle, description.as_ptr().cast()));
        if made.is_ok() && self.player.options.refused.contains(&index) {
            let _ = call!(self.driver(), cuArrayDestroy(handle));
        } else if made.is_ok() {
            let filled = Default::default();
            self.slots().arrays.put(slot, Array { handle, filled, ctx });
        }
        code(made)
    }

    /// Slot 0 is the device's default pool.
    fn pools(&mut self, line: &Line) -> Seen {
        let (driver, slots, slot) = (self.driver(), self.slots(), line.arg(0));
        match line.op {
            Op::PoolCreate => {
                let ctx =
                    slots.contexts.get(0).filter(|_| slot > 0 && slots.pools.is_free(slot))?;
                // CUmemPoolProps: pinned memory of device 0.
                let (mut handle, mut properties) = (0, [0_u64; 11]);
                (properties[0], properties[1]) = (1, 1);
                let made = call!(driver, cuMemPoolCreate(&mut handle, properties.as_ptr().cast()));
                if made.is_ok() {
                    slots.pools.put(slot, Thing { handle, ctx });
                }
                code(made)
            }
            Op::PoolDestroy => {
                let pool = slots.pools.get(slot)?;
                // Measured: if a pool is destroyed before its memory is free and the frees have
                // completed, the driver (580.159.04) may crash in a later call.
                if driver.races().is_none() {
                    slots.pools.set_aside(slot);
                    return code(Ok(()));
                }
                slots.pools.clear(slot);
                code(call!(driver, cuMemPoolDestroy(pool.handle)))
            }
            Op::PoolTrim => {
                code(call!(driver, cuMemPoolTrimTo(self.pool(slot)?, line.arg(1) as usize)))
            }
            _ => {
                let mut keep = line.arg(1);
                code(call!(driver, cuMemPoolSetAttribute(self.pool(slot)?, 4, &mut keep)))
            }
        }
    }

    pub fn pool(&self, slot: u64) -> Option<u64> {
        if slot > 0 {
            return self.slots().pools.get(slot).map(|pool| pool.handle);
        }
        let mut pool = 0;
        call!(self.driver(), cuDeviceGetDefaultMemPool(&mut pool, 0)).ok().map(|()| pool)
    }

    /// Creates a texture over a block, or over host memory.
    fn textures(&mut self, line: &Line) -> Seen {
        let slot = line.arg(0);
        if line.op == Op::TextureDestroy {
            let texture = self.slots().textures.get(slot)?;
            self.slots().textures.clear(slot);
            return code(call!(self.driver(), cuTexObjectDestroy(texture.handle)));
        }
        let ctx = self.current.clone().filter(|_| self.slots().textures.is_free(slot))?;
        let (address, bytes) = match line.arg(1) {
            0 => self.slots().blocks.get(line.arg(2)).map(|block| (block.address, block.bytes))?,
            _ => self.slots().hosts.get(line.arg(2)).map(|host| (host.address, host.bytes))?,
        };
        let made = self.linear_texture(address, bytes);
        if let Ok(handle) = made {
            self.slots().textures.put(slot, Thing { handle, ctx });
        }
        code(made.map(drop))
    }

    pub fn linear_texture(&self, address: u64, bytes: usize) -> Outcome<u64> {
        // CUDA_RESOURCE_DESC: linear memory, one channel of 32 bits. CUDA_TEXTURE_DESC: elements
        // are read unchanged.
        let (mut resource, mut description, mut texture) = ([0_u64; 18], [0_u32; 26], 0);
        let shape = [2, address, 3 | 1 << 32, bytes.min(1 << 20) as u64];
        resource[..4].copy_from_slice(&shape);
        description[4] = 1;
        let (resource, description) = (resource.as_ptr().cast(), description.as_ptr().cast());
        let none = std::ptr::null();
        call!(self.driver(), cuTexObjectCreate(&mut texture, resource, description, none))?;
        Ok(texture)
    }
}
