//! Host memory: pinned, registered and plain; what the device writes there and the host sees.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use cachealloc_tests::driver::{Driver, Outcome};

use super::kernels::{BY_LIST, IN_ONE_BUFFER, Kernel};
use super::request::part_of;
use super::slots::{Host, HostKind, lock};
use super::work::{deep_copy, flat_copy};
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn host(&mut self, index: usize, line: &Line) -> Seen {
        match line.op {
            Op::HostAlloc | Op::HostPlain => self.host_memory(line),
            Op::HostRegister => {
                let host = self.slots().hosts.get(line.arg(0))?;
                if host.kind != HostKind::Plain {
                    return None;
                }
                let done = call!(self.driver(), cuMemHostRegister(host.address, host.bytes, 0));
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

    fn host_memory(&mut self, line: &Line) -> Seen {
        let (slot, bytes) = (line.arg(0), line.arg(1) as usize);
        let ctx = self.current.clone().filter(|ctx| ctx.alive())?;
        if bytes < 64 || !self.slots().hosts.is_free(slot) {
            return None;
        }
        let (made, kind) = match line.op {
            Op::HostAlloc => {
                let (mut address, flags) = (0, line.arg(2) as u32);
                let made = call!(self.driver(), cuMemHostAlloc(&mut address, bytes, flags));
                (made.map(|()| address), HostKind::Pinned)
            }
            // Never given back: a copy that is late must not find another owner there.
            _ => (Ok(plain_pages(bytes)), HostKind::Plain),
        };
        let Ok(address) = made else { return code(made.map(drop)) };
        let part = part_of(slot, bytes);
        let (filled, registered) = (Arc::default(), Arc::default());
        let part = (address + part.0, part.1);
        self.slots().hosts.put(slot, Host { address, bytes, kind, part, filled, ctx, registered });
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
        if freed.is_err() {
            self.slots().hosts.put(slot, host);
        }
        code(freed)
    }

    pub fn host_words(&self, host: &Host) -> Vec<u64> {
        let (at, bytes) = host.part;
        self.driver().note_host_read(at, bytes as usize);
        // SAFETY: the player owns this memory, whose part is whole words.
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
            // Kernels reach no ordinary memory of the host.
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
                let shape = flat_copy((1, dst, ROWS_BEFORE[how as usize - 4]), (2, src, 0), bytes);
                call!(driver, cuMemcpy2DAsync(shape.as_ptr().cast(), stream.handle))
            }
            7 => {
                let shape = deep_copy((1, dst, 3), (2, src, 0), bytes);
                call!(driver, cuMemcpy3DAsync(shape.as_ptr().cast(), stream.handle))
            }
            _ => self.batch(dst, src, size, stream.handle),
        };
        if done.is_ok() {
            stream.fills(&host.filled);
            block.used(&stream);
        }
        code(done)
    }

    /// One copy, as a batch of one.
    fn batch(&self, dst: u64, src: u64, bytes: usize, stream: u64) -> Outcome {
        // As CUmemcpyAttributes: in the order of the stream.
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
        let args = [at, bytes, value, self.delay(index, line.arg(3))];
        let done = match line.arg(4) {
            0 => self.kernel(&stream, Kernel::LateFill, &args, BY_LIST),
            1 => self.kernel(&stream, Kernel::LateFill, &args, IN_ONE_BUFFER),
            2 => call!(
                self.driver(),
                cuMemsetD8Async(at, value as u8, bytes as usize, stream.handle)
            ),
            _ => {
                // One word is not the part.
                host.filled.load(Ordering::SeqCst).then_some(())?;
                call!(self.driver(), cuStreamWriteValue64(stream.handle, at, value, 0))
            }
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
                let shape = flat_copy((2, dst, 0), (1, src, 5), bytes);
                call!(driver, cuMemcpy2DAsync(shape.as_ptr().cast(), stream.handle))
            }
            _ => self.batch(dst, src, size, stream.handle),
        };
        self.wrote(&block, &stream, done)
    }

    fn host_function(&self, line: &Line) -> Seen {
        let (stream, host) = (self.stream(line.arg(0))?, self.slots().hosts.get(line.arg(1))?);
        // It lives as long as a graph may call it.
        let job = Box::leak(Box::new(HostJob {
            driver: self.driver() as *const Driver,
            part: host.part,
            value: line.arg(2),
        }));
        let data: *mut c_void = (&raw mut *job).cast();
        let done = match line.arg(3) {
            0 => self.driver().host_function(stream.handle, write_words, data),
            _ => {
                let function = write_words_of_stream;
                call!(self.driver(), cuStreamAddCallback(stream.handle, function, data, 0))
            }
        };
        if done.is_ok() {
            stream.fills(&host.filled);
        }
        code(done)
    }

    fn host_request(&self, index: usize, line: &Line) -> Seen {
        let stream = self.stream(line.arg(0))?;
        let job = Box::leak(Box::new(Request {
            driver: self.driver() as *const Driver,
            answers: self.player.answers.clone(),
            line: index,
            what: line.arg(1),
            answer: AtomicI32::new(0),
        }));
        let data: *mut c_void = (&raw mut *job).cast();
        code(self.driver().host_function(stream.handle, ask_for_memory, data))
    }
}

/// First word, last word, and how many differ from the first.
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
    // SAFETY: a fresh mapping touches nothing that exists.
    unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) as u64 }
}

struct HostJob {
    driver: *const Driver,
    part: (u64, u64),
    value: u64,
}

unsafe extern "C" fn write_words(data: *mut c_void) {
    // SAFETY: the player made this job, and it and the driver live as long as the process.
    let (job, driver) = unsafe {
        let job = &*data.cast::<HostJob>();
        (job, &*job.driver)
    };
    let (at, bytes) = job.part;
    driver.note_host_write(at, bytes as usize);
    (0..bytes / 8).for_each(|word| driver.set_flag(at + word * 8, job.value));
}

unsafe extern "C" fn write_words_of_stream(_stream: u64, _code: i32, data: *mut c_void) {
    // SAFETY: as above.
    unsafe { write_words(data) }
}

struct Request {
    driver: *const Driver,
    answers: Arc<Mutex<Vec<(usize, i32)>>>,
    line: usize,
    what: u64,
    answer: AtomicI32,
}

/// What no host function may do; the driver's answer is what counts.
unsafe extern "C" fn ask_for_memory(data: *mut c_void) {
    // SAFETY: the player made this request, and it and the driver live as long as the process.
    let (request, driver) = unsafe {
        let request = &*data.cast::<Request>();
        (request, &*request.driver)
    };
    let asked = match request.what {
        0 => driver.alloc(4096).map(drop),
        1 => driver.free(0x1000),
        2 => driver.alloc_async(4096, 1).map(drop),
        3 => driver.pinned(4096).map(drop),
        4 => driver.memory_info().map(drop),
        _ => driver.address_range(0x1000).map(drop),
    };
    request.answer.store(asked.err().unwrap_or(0), Ordering::SeqCst);
    lock(&request.answers).push((request.line, asked.err().unwrap_or(0)));
}

/// Rows between the base that a 2D copy is given and the memory that it writes.
const ROWS_BEFORE: [u64; 3] = [0, 3, 4096];
