//! Host memory: pinned, registered and plain; the device writes it, and the host reads it.

use std::sync::atomic::Ordering;

use cachealloc_tests::driver::{LEGACY, Outcome};

use super::kernels::{BY_LIST, IN_ONE_BUFFER, Kernel, PACKED};
use super::request::part_of;
use super::slots::{Host, HostKind, lock};
use super::work::{WRITE_64, deep_copy, flat_copy};
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn host(&mut self, index: usize, line: &Line) -> Seen {
        match line.op {
            Op::HostAlloc | Op::HostPlain => self.host_memory(index, line),
            Op::HostRegister => {
                let host = self.slots().hosts.get(line.arg(0))?;
                if host.kind != HostKind::Plain {
                    return None;
                }
                // Mapped memory is used beside memory that is mapped by default.
                let flags = if line.arg(0).is_multiple_of(2) { 0 } else { MAPPED };
                let driver = self.driver();
                let done = call!(driver, cuMemHostRegister(host.address, host.bytes, flags));
                host.registered.fetch_or(done.is_ok(), Ordering::SeqCst);
                code(done)
            }
            Op::HostUnregister => {
                let host = self.slots().hosts.get(line.arg(0))?;
                host.registered.store(false, Ordering::SeqCst);
                code(call!(self.driver(), cuMemHostUnregister(host.address)))
            }
            Op::HostFree => self.host_free(line.arg(0)),
            Op::HostRead => {
                let host = self.slots().hosts.get(line.arg(0))?;
                host.filled.load(Ordering::SeqCst).then_some(())?;
                Some((0, self.host_words(&host)))
            }
            Op::HostWrite => {
                let host = self.slots().hosts.get(line.arg(0))?;
                let (at, bytes) = host.part;
                self.driver().note_host_write(at, bytes as usize);
                (0..bytes / 8).for_each(|word| self.driver().set_flag(at + word * 8, line.arg(1)));
                host.filled.store(true, Ordering::SeqCst);
                Some((0, Vec::new()))
            }
            Op::ToHost => self.write_host(index, line),
            Op::FillHost => self.fill_host(index, line),
            Op::FromHost => self.read_host(index, line),
            Op::HostFunction => self.host_function(line),
            Op::HostRequest => self.host_request(index, line),
            Op::Keep => self.keep_address(line),
            Op::FillFound => self.fill_found(index, line),
            _ => {
                let mut answers = lock(&self.player.answers).clone();
                answers.sort_unstable();
                Some((
                    0,
                    answers.iter().flat_map(|(line, code)| [*line as u64, *code as u64]).collect(),
                ))
            }
        }
    }

    fn host_memory(&mut self, index: usize, line: &Line) -> Seen {
        let (slot, bytes) = (line.arg(0), line.arg(1) as usize);
        let ctx = self.current.clone().filter(|ctx| ctx.alive())?;
        if bytes < 64 || !self.slots().hosts.is_free(slot) {
            return None;
        }
        let (made, kind) = match line.op {
            Op::HostAlloc => {
                let (mut address, flags) = (0, line.arg(2) as u32);
                let made = match flags {
                    PLAINLY => call!(self.driver(), cuMemAllocHost(&mut address, bytes)),
                    _ => call!(self.driver(), cuMemHostAlloc(&mut address, bytes, flags)),
                };
                (made.map(|()| address), HostKind::Pinned)
            }
            // This memory is never freed: a late copy must not find another owner there.
            _ => (Ok(plain_pages(bytes)), HostKind::Plain),
        };
        let Ok(address) = made else { return code(made.map(drop)) };
        if self.player.options.refused.contains(&index) {
            // The library had some memory left; from here on the program continues as without the
            // library.
            let _ = self.driver().free_pinned(address);
            return Some((0, Vec::new()));
        }
        let part = part_of(slot, bytes);
        let (filled, registered, texture, table) = Default::default();
        let part = (address + part.0, part.1);
        let host = Host { address, bytes, kind, part, filled, ctx, registered, texture, table };
        self.slots().hosts.put(slot, host);
        Some((0, Vec::new()))
    }

    fn host_free(&mut self, slot: u64) -> Seen {
        let host = self.slots().hosts.get(slot)?;
        if host.kind == HostKind::Plain {
            if host.registered.load(Ordering::SeqCst) {
                return None;
            }
            self.slots().hosts.clear(slot);
            return Some((0, Vec::new()));
        }
        self.slots().hosts.clear(slot);
        let freed = self.driver().free_pinned(host.address);
        match freed {
            Ok(()) => self.freed = host.address,
            Err(_) => self.slots().hosts.put(slot, host),
        }
        code(freed)
    }

    pub fn host_words(&self, host: &Host) -> Vec<u64> {
        let (at, bytes) = host.part;
        self.driver().note_host_read(at, bytes as usize);
        // SAFETY: the player owns this memory, and the part consists of whole words.
        let word = |index: u64| unsafe { ((at + index * 8) as *const u64).read_volatile() };
        summary((0..bytes / 8).map(word))
    }

    fn write_host(&self, index: usize, line: &Line) -> Seen {
        let (host, block) = (self.slots().hosts.get(line.arg(0))?, self.readable(line.arg(1))?);
        let (stream, how) = (self.stream(line.arg(2))?, line.arg(4));
        if host.part.1 != block.part.1 {
            return None;
        }
        let (dst, src, bytes) = (host.part.0, block.part.0, host.part.1);
        let (driver, size) = (self.driver(), host.part.1 as usize);
        let pinned = host.kind == HostKind::Pinned || host.registered.load(Ordering::SeqCst);
        let done = match how {
            // Kernels do not access ordinary host memory.
            0 | 1 if !pinned => return None,
            0 | 1 => {
                let args = [dst, src, bytes, self.delay(index, line.arg(3))];
                self.kernel(
                    &stream,
                    Kernel::Copy,
                    &args,
                    if how == 0 { BY_LIST } else { IN_ONE_BUFFER },
                )
            }
            2 => driver.copy(dst, src, size, stream.handle),
            3 => call!(driver, cuMemcpyDtoHAsync(dst, src, size, stream.handle)),
            4..=6 => {
                let rows = self.rows_before(ROWS_BEFORE[how as usize - 4]);
                let shape = flat_copy((1, dst, rows), (2, src, 0), bytes);
                call!(driver, cuMemcpy2DAsync(shape.as_ptr().cast(), stream.handle))
            }
            7 => {
                let shape = deep_copy((1, dst, self.rows_before(3)), (2, src, 0), bytes);
                call!(driver, cuMemcpy3DAsync(shape.as_ptr().cast(), stream.handle))
            }
            8 => self.batch(dst, src, size, stream.handle),
            _ => call!(driver, cuMemcpyDtoH(dst, src, size)),
        };
        if done.is_ok() {
            stream.fills(&host.filled);
            block.used(&stream);
        }
        code(done)
    }

    /// Number of rows by which the base of a copy precedes the memory. Measured: a GPU's driver
    /// takes the memory at the base for the operand, and what lies there is chance.
    fn rows_before(&self, rows: u64) -> u64 {
        if self.driver().races().is_some() { rows } else { 0 }
    }

    /// Makes one copy as a batch of one. On the legacy stream, which does not accept batches
    /// (measured), it is a plain copy: later lines may rely on its order.
    pub fn batch(&self, dst: u64, src: u64, bytes: usize, stream: u64) -> Outcome {
        if stream <= LEGACY {
            return self.driver().copy(dst, src, bytes, stream);
        }
        // CUmemcpyAttributes: in stream order.
        let attributes = [1_u32, 0, 0, 0, 0, 0];
        let (first, mut failed) = (0_usize, 0_usize);
        let (dst, src, bytes) = (&raw const dst, &raw const src, &raw const bytes);
        let (attributes, first) = (attributes.as_ptr().cast(), (&raw const first).cast());
        let place = &raw mut failed;
        call!(
            self.driver(),
            cuMemcpyBatchAsync(
                dst.cast(),
                src.cast(),
                bytes.cast(),
                1,
                attributes,
                first,
                1,
                place,
                stream
            )
        )
    }

    fn fill_host(&self, index: usize, line: &Line) -> Seen {
        let (host, stream) = (self.slots().hosts.get(line.arg(0))?, self.stream(line.arg(1))?);
        let (value, (at, bytes)) = (line.arg(2), host.part);
        if host.kind != HostKind::Pinned && !host.registered.load(Ordering::SeqCst) {
            return None;
        }
        let delay = self.delay(index, line.arg(3));
        let args = [at, bytes, value, delay];
        if line.arg(4) > 2 {
            // A single word does not fill the part.
            host.filled.load(Ordering::SeqCst).then_some(())?;
        }
        let end = host.address + host.bytes as u64;
        let done = match line.arg(4) {
            0 => self.kernel(&stream, Kernel::LateFill, &args, BY_LIST),
            1 => self.kernel(&stream, Kernel::LateFill, &args, IN_ONE_BUFFER),
            2 => call!(
                self.driver(),
                cuMemsetD8Async(at, value as u8, bytes as usize, stream.handle)
            ),
            3 => call!(self.driver(), cuStreamWriteValue64(stream.handle, at, value, 0)),
            4 => {
                // The kernel gets the end of the memory, like a reverse iterator.
                let args = [end, (at + bytes - 8).wrapping_sub(end), value, delay];
                self.kernel(&stream, Kernel::FillAt, &args, BY_LIST)
            }
            5 => self.kernel(&stream, Kernel::FillPacked, &[at, value, delay], PACKED),
            _ => self.memory_operation(&stream, WRITE_64, at, value),
        };
        if done.is_ok() {
            stream.fills(&host.filled);
        }
        code(done)
    }

    fn read_host(&self, index: usize, line: &Line) -> Seen {
        let (block, host) = (self.open_block(line.arg(0))?, self.slots().hosts.get(line.arg(1))?);
        let (stream, how) = (self.stream(line.arg(2))?, line.arg(4));
        if host.part.1 != block.part.1 || !host.filled.load(Ordering::SeqCst) {
            return None;
        }
        let (dst, src, bytes) = (block.part.0, host.part.0, host.part.1);
        let (driver, size) = (self.driver(), host.part.1 as usize);
        let pinned = host.kind == HostKind::Pinned || host.registered.load(Ordering::SeqCst);
        let done = match how {
            0 if !pinned => return None,
            0 => {
                let args = [dst, src, bytes, self.delay(index, line.arg(3))];
                self.kernel(&stream, Kernel::Copy, &args, BY_LIST)
            }
            1 => call!(driver, cuMemcpyHtoDAsync(dst, src, size, stream.handle)),
            2 => driver.copy(dst, src, size, stream.handle),
            3 => {
                let shape = flat_copy((2, dst, 0), (1, src, self.rows_before(5)), bytes);
                call!(driver, cuMemcpy2DAsync(shape.as_ptr().cast(), stream.handle))
            }
            4 => self.batch(dst, src, size, stream.handle),
            5 => {
                // A single word does not fill the part.
                let usable = pinned && src == host.address && block.filled.load(Ordering::SeqCst);
                let texture = usable.then(|| self.texture_over(&host)).flatten()?;
                let args = [dst, texture, self.delay(index, line.arg(3))];
                self.kernel(&stream, Kernel::Fetch, &args, BY_LIST)
            }
            _ => call!(driver, cuMemcpyHtoD(dst, src, size)),
        };
        self.wrote(&block, &stream, done)
    }

    /// Returns the texture over the memory, which is created at its first use.
    fn texture_over(&self, host: &Host) -> Option<u64> {
        let mut texture = lock(&host.texture);
        if *texture == 0 {
            *texture = self.linear_texture(host.address, host.bytes).ok()?;
        }
        Some(*texture)
    }
}

/// Returns the first word, the last word, and how many words differ from the first.
pub fn summary(words: impl Iterator<Item = u64>) -> Vec<u64> {
    let words: Vec<u64> = words.collect();
    let first = words.first().copied().unwrap_or(0);
    let others = words.iter().filter(|word| **word != first).count() as u64;
    vec![first, words.last().copied().unwrap_or(0), others]
}

fn plain_pages(bytes: usize) -> u64 {
    let bytes = bytes.next_multiple_of(4096);
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping does not affect any existing memory.
    unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) as u64 }
}

const MAPPED: u32 = 2;
/// Used in place of flags: selects the function without flags.
const PLAINLY: u32 = 99;
/// Number of rows between the base passed to a 2D copy and the memory that it writes.
const ROWS_BEFORE: [u64; 3] = [0, 3, 4096];
