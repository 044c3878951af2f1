//! Work on device memory: kernels, fills, copies, flags.

use std::sync::atomic::Ordering;

use cachealloc_tests::driver::Outcome;

use super::kernels::{BY_LIST, Kernel, launch};
use super::slots::{Block, Stream, lock};
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn work(&mut self, index: usize, line: &Line) -> Seen {
        match line.op {
            Op::Fill => {
                let (block, stream) = (self.open_block(line.arg(0))?, self.stream(line.arg(1))?);
                let (at, bytes) = block.part;
                let args = [at, bytes, line.arg(2), self.delay(index, line.arg(3))];
                let done = self.kernel(&stream, Kernel::LateFill, &args, line.arg(4));
                self.wrote(&block, &stream, done)
            }
            Op::Memset => self.memset(line),
            Op::Copy => self.copy(index, line),
            Op::Add => {
                let (to, from) = (self.readable(line.arg(0))?, self.readable(line.arg(1))?);
                let stream = self.stream(line.arg(2))?;
                let bytes = to.part.1.min(from.part.1);
                let args = [to.part.0, from.part.0, bytes, self.delay(index, line.arg(3))];
                from.used(&stream);
                to.used(&stream);
                code(self.kernel(&stream, Kernel::Add, &args, BY_LIST))
            }
            Op::FillArray | Op::ReadArray => self.array(line),
            Op::Delay => {
                let stream = self.stream(line.arg(0))?;
                let ns = self.delay(index, line.arg(1));
                code(self.kernel(&stream, Kernel::Delay, &[ns], BY_LIST))
            }
            Op::Spin => {
                let stream = self.stream(line.arg(0))?;
                let flag = self.flag(line.arg(1))?;
                code(self.kernel(&stream, Kernel::Spin, &[flag, 1], BY_LIST))
            }
            Op::Raise => self.raise(line),
            _ => {
                let (block, stream) = (self.open_block(line.arg(0))?, self.stream(line.arg(1))?);
                // One word is not the part: what it holds is seen only if all was filled before.
                block.used(&stream);
                let (at, value) = (block.part.0, line.arg(2));
                code(call!(self.driver(), cuStreamWriteValue64(stream.handle, at, value, 0)))
            }
        }
    }

    pub fn kernel(&self, stream: &Stream, kernel: Kernel, args: &[u64], how: u64) -> Outcome {
        launch(self.driver(), stream.ctx.kernels.function(kernel), stream.handle, args, how)
    }

    pub fn open_block(&self, slot: u64) -> Option<Block> {
        self.slots().blocks.get(slot).filter(|block| !block.closed.load(Ordering::SeqCst))
    }

    /// A block that has been written: nothing else has contents that two runs share.
    pub fn readable(&self, slot: u64) -> Option<Block> {
        self.open_block(slot).filter(|block| block.filled.load(Ordering::SeqCst))
    }

    pub fn wrote(&self, block: &Block, stream: &Stream, done: Outcome) -> Seen {
        if done.is_ok() {
            stream.fills(&block.filled);
            block.used(stream);
        }
        code(done)
    }

    fn memset(&self, line: &Line) -> Seen {
        let (block, byte) = (self.open_block(line.arg(0))?, line.arg(2) as u8);
        let stream = self.stream(if line.arg(3) == SYNCHRONOUS { 0 } else { line.arg(1) })?;
        let ((at, bytes), driver) = (block.part, self.driver());
        let size = bytes as usize;
        let done = match line.arg(3) {
            SYNCHRONOUS => call!(driver, cuMemsetD8(at, byte, size)),
            1 => {
                let word = u32::from_ne_bytes([byte; 4]);
                call!(driver, cuMemsetD32Async(at, word, size / 4, stream.handle))
            }
            2 => {
                let (rows, width) = (size / 8, 8);
                call!(driver, cuMemsetD2D8Async(at, 8, byte, width, rows, stream.handle))
            }
            _ => driver.memset(at, byte, size, stream.handle),
        };
        self.wrote(&block, &stream, done)
    }

    fn copy(&self, index: usize, line: &Line) -> Seen {
        let (to, from) = (self.open_block(line.arg(0))?, self.readable(line.arg(1))?);
        let how = line.arg(4);
        let stream = self.stream(if how == SYNCHRONOUS { 0 } else { line.arg(2) })?;
        if to.part.1 != from.part.1 {
            return None;
        }
        let (dst, src, bytes) = (to.part.0, from.part.0, to.part.1);
        let driver = self.driver();
        let done = match how {
            0 => {
                let args = [dst, src, bytes, self.delay(index, line.arg(3))];
                self.kernel(&stream, Kernel::Copy, &args, BY_LIST)
            }
            1 => driver.copy(dst, src, bytes as usize, stream.handle),
            SYNCHRONOUS => call!(driver, cuMemcpyDtoD(dst, src, bytes as usize)),
            _ => {
                let shape = flat_copy((2, dst, 0), (2, src, 0), bytes);
                call!(driver, cuMemcpy2DAsync(shape.as_ptr().cast(), stream.handle))
            }
        };
        from.used(&stream);
        self.wrote(&to, &stream, done)
    }

    fn array(&self, line: &Line) -> Seen {
        let fills = line.op == Op::FillArray;
        let (array, block) = if fills { (0, 1) } else { (1, 0) };
        let array = self.slots().arrays.get(line.arg(array))?;
        let block = match fills {
            true => self.readable(line.arg(block))?,
            false => self.open_block(line.arg(block))?,
        };
        let stream = self.stream(line.arg(2))?;
        // Always one row's beginning, so that what is read was written.
        let bytes = 64;
        if block.part.1 != bytes && !fills && !block.filled.load(Ordering::SeqCst) {
            return None;
        }
        if !fills && !array.filled.load(Ordering::SeqCst) {
            return None;
        }
        let mut shape = [0_u64; 16];
        let (there, here) = if fills { (7, 0) } else { (0, 7) };
        (shape[there + 2], shape[there + 5]) = (3, array.handle);
        (shape[here + 2], shape[here + 4], shape[here + 6]) = (2, block.part.0, bytes);
        (shape[14], shape[15]) = (bytes, 1);
        let done = call!(self.driver(), cuMemcpy2DAsync(shape.as_ptr().cast(), stream.handle));
        if fills && done.is_ok() {
            stream.fills(&array.filled);
        }
        block.used(&stream);
        code(done)
    }

    /// A word that kernels spin on; the host, or other work, sets it.
    fn flag(&self, number: u64) -> Option<u64> {
        let mut flags = lock(&self.player.flags);
        if *flags == 0 {
            *flags = self.driver().pinned(FLAGS_MAX as usize * 8).ok()?;
            (0..FLAGS_MAX).for_each(|flag| self.driver().set_flag(*flags + flag * 8, 0));
        }
        (number < FLAGS_MAX).then_some(*flags + number * 8)
    }

    fn raise(&self, line: &Line) -> Seen {
        let flag = self.flag(line.arg(0))?;
        if line.arg(1) == 0 {
            self.driver().set_flag(flag, 1);
            return Some((0, Vec::new()));
        }
        let stream = self.stream(line.arg(2))?;
        code(self.kernel(&stream, Kernel::Set, &[flag, 1], BY_LIST))
    }
}

impl Block {
    /// The stream's work touches it.
    pub fn used(&self, stream: &Stream) {
        if stream.capture().is_some() {
            self.in_graph.store(true, Ordering::SeqCst);
        }
    }
}

/// As CUDA_MEMCPY2D, in rows of eight bytes: kind of memory, address and first row of each side.
pub fn flat_copy(dst: (u64, u64, u64), src: (u64, u64, u64), bytes: u64) -> [u64; 16] {
    let (width, rows) = (8, bytes / 8);
    let side = |(kind, address, first_row): (u64, u64, u64)| {
        // With rows before the first one, the base lies before the memory that is meant.
        let base = address.wrapping_sub(first_row * width);
        let (host, device) = if kind == 1 { (base, 0) } else { (0, base) };
        [0, first_row, kind, host, device, 0, width]
    };
    let (src, dst) = (side(src), side(dst));
    let mut shape = [0; 16];
    shape[..7].copy_from_slice(&src);
    shape[7..14].copy_from_slice(&dst);
    (shape[14], shape[15]) = (width, rows);
    shape
}

/// The same as CUDA_MEMCPY3D: one slice, and as many before it as rows were.
pub fn deep_copy(dst: (u64, u64, u64), src: (u64, u64, u64), bytes: u64) -> [u64; 25] {
    let (width, rows) = (8, bytes / 8);
    let side = |(kind, address, first): (u64, u64, u64)| {
        let base = address.wrapping_sub(first * width * rows);
        let (host, device) = if kind == 1 { (base, 0) } else { (0, base) };
        [0, 0, first, 0, kind, host, device, 0, 0, width, rows]
    };
    let mut shape = [0; 25];
    shape[..11].copy_from_slice(&side(src));
    shape[11..22].copy_from_slice(&side(dst));
    (shape[22], shape[23], shape[24]) = (width, rows, 1);
    shape
}

const SYNCHRONOUS: u64 = 9;
const FLAGS_MAX: u64 = 64;
