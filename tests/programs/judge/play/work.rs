//! Work on device memory: kernels, fills, copies, flags.

use std::sync::atomic::Ordering;

use cachealloc_tests::driver::Outcome;

use super::kernels::{BY_LIST, COOPERATIVE, Kernel, launch};
use super::slots::{Block, BlockKind, Stream, lock};
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
            Op::Nothing => {
                let stream = self.stream(line.arg(0))?;
                code(self.kernel(&stream, Kernel::Nothing, &[], BY_LIST))
            }
            Op::Spin => {
                let stream = self.stream(line.arg(0))?;
                let (flag, driver) = (self.flag(line.arg(1))?, self.driver());
                code(match line.arg(2) {
                    0 => self.kernel(&stream, Kernel::Spin, &[flag, 1], BY_LIST),
                    1 => call!(driver, cuStreamWaitValue64(stream.handle, flag, 1, 0)),
                    2 => call!(driver, cuStreamWaitValue32(stream.handle, flag, 1, 0)),
                    _ => self.memory_operation(&stream, WAIT_64, flag, 1),
                })
            }
            Op::SpinFound => {
                let (stream, block) = (self.stream(line.arg(0))?, self.open_block(line.arg(2))?);
                let flag = self.flag(line.arg(1))?;
                let written = self.driver().write_words(block.address, &[flag]);
                block.used(&stream);
                let args = [block.address, 1];
                let spins = || self.kernel(&stream, Kernel::IndirectSpin, &args, BY_LIST);
                code(written.and_then(|()| spins()))
            }
            Op::Say => {
                let stream = self.stream(line.arg(0))?;
                let args = [line.arg(1), self.delay(index, line.arg(2))];
                code(self.kernel(&stream, Kernel::Say, &args, BY_LIST))
            }
            Op::Raise => self.raise(line),
            _ => {
                let (block, stream) = (self.open_block(line.arg(0))?, self.stream(line.arg(1))?);
                // Measured: the driver refuses it for managed memory and for memory of a pool.
                // Under the library, memory of a pool may be ordinary memory.
                if matches!(block.kind, BlockKind::Managed | BlockKind::Ordered) {
                    return None;
                }
                // A single word does not fill the part: its contents are read only if all was
                // filled before.
                block.used(&stream);
                let ((at, _), value, driver) = (block.part, line.arg(2), self.driver());
                code(match line.arg(3) {
                    0 => call!(driver, cuStreamWriteValue64(stream.handle, at, value, 0)),
                    1 => call!(driver, cuStreamWriteValue32(stream.handle, at, value as u32, 0)),
                    _ => self.memory_operation(&stream, WRITE_64, at, value),
                })
            }
        }
    }

    pub fn kernel(&self, stream: &Stream, kernel: Kernel, args: &[u64], how: u64) -> Outcome {
        launch(self.driver(), stream.ctx.kernels.function(kernel), stream.handle, args, how)
    }

    /// Makes one operation of `cuStreamBatchMemOp`.
    pub fn memory_operation(&self, stream: &Stream, kind: u64, at: u64, value: u64) -> Outcome {
        let operation = [kind, at, value, 0, 0, 0];
        call!(self.driver(), cuStreamBatchMemOp(stream.handle, 1, operation.as_ptr().cast(), 0))
    }

    pub fn open_block(&self, slot: u64) -> Option<Block> {
        self.slots().blocks.get(slot).filter(|block| !block.closed.load(Ordering::SeqCst))
    }

    /// Returns the block if it has been written: otherwise its contents differ from run to run.
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
        let how = line.arg(3);
        let stream = self.stream(if how >= SYNCHRONOUS { 0 } else { line.arg(1) })?;
        let ((at, bytes), driver, s) = (block.part, self.driver(), stream.handle);
        let (size, rows) = (bytes as usize, bytes as usize / 8);
        let (half, word) = (u16::from_ne_bytes([byte; 2]), u32::from_ne_bytes([byte; 4]));
        let done = match how {
            0 => driver.memset(at, byte, size, s),
            1 => call!(driver, cuMemsetD32Async(at, word, size / 4, s)),
            2 => call!(driver, cuMemsetD2D8Async(at, 8, byte, 8, rows, s)),
            3 => call!(driver, cuMemsetD16Async(at, half, size / 2, s)),
            4 => call!(driver, cuMemsetD2D16Async(at, 8, half, 4, rows, s)),
            5 => call!(driver, cuMemsetD2D32Async(at, 8, word, 2, rows, s)),
            SYNCHRONOUS => call!(driver, cuMemsetD8(at, byte, size)),
            10 => call!(driver, cuMemsetD16(at, half, size / 2)),
            11 => call!(driver, cuMemsetD32(at, word, size / 4)),
            12 => call!(driver, cuMemsetD2D8(at, 8, byte, 8, rows)),
            13 => call!(driver, cuMemsetD2D16(at, 8, half, 4, rows)),
            _ => call!(driver, cuMemsetD2D32(at, 8, word, 2, rows)),
        };
        self.wrote(&block, &stream, done)
    }

    fn copy(&self, index: usize, line: &Line) -> Seen {
        let (to, from) = (self.open_block(line.arg(0))?, self.readable(line.arg(1))?);
        let how = line.arg(4);
        let stream = self.stream(if how >= SYNCHRONOUS { 0 } else { line.arg(2) })?;
        if to.part.1 != from.part.1 {
            return None;
        }
        let (dst, src, bytes) = (to.part.0, from.part.0, to.part.1);
        let (driver, size, s) = (self.driver(), bytes as usize, stream.handle);
        let (flat, mut deep) = (
            flat_copy((2, dst, 0), (2, src, 0), bytes),
            deep_copy((2, dst, 0), (2, src, 0), bytes),
        );
        let (there, here) = (to.ctx.handle, from.ctx.handle);
        if matches!(how, 7 | 15) {
            // CUDA_MEMCPY3D_PEER has the contexts where the other struct has reserved fields.
            (deep[8], deep[19]) = (here, there);
        }
        let (flat, deep) = (flat.as_ptr().cast(), deep.as_ptr().cast());
        let done = match how {
            0 | 8 => {
                let args = [dst, src, bytes, self.delay(index, line.arg(3))];
                let how = if how == 0 { BY_LIST } else { COOPERATIVE };
                self.kernel(&stream, Kernel::Copy, &args, how)
            }
            1 => driver.copy(dst, src, size, s),
            2 => call!(driver, cuMemcpy2DAsync(flat, s)),
            3 => call!(driver, cuMemcpyDtoDAsync(dst, src, size, s)),
            4 => call!(driver, cuMemcpy3DAsync(deep, s)),
            5 => self.batch(dst, src, size, s),
            6 => call!(driver, cuMemcpyPeerAsync(dst, there, src, here, size, s)),
            7 => call!(driver, cuMemcpy3DPeerAsync(deep, s)),
            SYNCHRONOUS => call!(driver, cuMemcpyDtoD(dst, src, size)),
            10 => call!(driver, cuMemcpy(dst, src, size)),
            11 => call!(driver, cuMemcpy2D(flat)),
            12 => call!(driver, cuMemcpy2DUnaligned(flat)),
            13 => call!(driver, cuMemcpy3D(deep)),
            14 => call!(driver, cuMemcpyPeer(dst, there, src, here, size)),
            _ => call!(driver, cuMemcpy3DPeer(deep)),
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
        // Always the start of one row, so that only written words are read.
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

    /// Returns a word on which kernels spin; the host or other work sets it.
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

/// CUDA_MEMCPY2D in rows of eight bytes: kind of memory, address and first row of each side.
pub fn flat_copy(dst: (u64, u64, u64), src: (u64, u64, u64), bytes: u64) -> [u64; 16] {
    let (width, rows) = (8, bytes / 8);
    let side = |(kind, address, first_row): (u64, u64, u64)| {
        // If rows precede the first one, the base lies before the memory to copy.
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

/// The same copy as CUDA_MEMCPY3D: one slice, preceded by as many slices as there were rows.
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

/// From this number on, the ways to copy or fill have no stream.
pub const SYNCHRONOUS: u64 = 9;
const WAIT_64: u64 = 4;
pub const WRITE_64: u64 = 5;
const FLAGS_MAX: u64 = 64;
