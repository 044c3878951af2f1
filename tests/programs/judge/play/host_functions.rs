//! Host functions: they write host memory, or make calls that no host function may make.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use cachealloc_tests::driver::Driver;

use super::slots::lock;
use super::{Actor, Seen, code};
use crate::grammar::Line;

impl Actor<'_> {
    pub fn host_function(&self, line: &Line) -> Seen {
        let (stream, host) = (self.stream(line.arg(0))?, self.slots().hosts.get(line.arg(1))?);
        // The job must live as long as a graph may call it.
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

    pub fn host_request(&self, index: usize, line: &Line) -> Seen {
        let stream = self.stream(line.arg(0))?;
        let block = self.slots().blocks.get(line.arg(2));
        let job = Box::leak(Box::new(Request {
            inside: block.map_or(0x1000, |block| block.address + block.bytes as u64 / 2),
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
    // SAFETY: the player made this job, as above.
    unsafe { write_words(data) }
}

struct Request {
    driver: *const Driver,
    answers: Arc<Mutex<Vec<(usize, i32)>>>,
    line: usize,
    what: u64,
    /// An address inside a block, not at its start.
    inside: u64,
    answer: AtomicI32,
}

/// Makes calls that no host function may make; the test compares the driver's answers.
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
        5 => driver.free(request.inside),
        6 => driver.free_async(request.inside, 1),
        _ => driver.address_range(0x1000).map(drop),
    };
    request.answer.store(asked.err().unwrap_or(0), Ordering::SeqCst);
    lock(&request.answers).push((request.line, asked.err().unwrap_or(0)));
}
