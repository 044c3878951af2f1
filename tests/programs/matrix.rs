//! The matrix of docs/ordering.md 2: every kind of earlier work, a free, and every kind of later
//! work on the same bytes. On the plain driver the free waits; under the library its barrier must
//! order the two.
//!
//! In each cell, earlier work writes a block late. The block is freed and allocated again (under
//! the library at the same address), and later work fills it. After a synchronisation every word
//! must be the later work's. On the simulator any pair without an order is a race as well.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use cachealloc_tests::driver::{Driver, Lookup, Outcome, PER_THREAD, RELAXED, Stream};

const BYTES: usize = 64 << 10;
const LATE_NS: u64 = 2_000_000;
const EARLIER_WORD: u64 = 0x1111_1111_1111_1111;
const LATER_WORD: u64 = 0x2222_2222_2222_2222;
const LEGACY_NULL: Stream = 0;

const EARLIER: &[&str] = &[
    "kernel on legacy",
    "kernel on blocking",
    "kernel on non-blocking",
    "kernel on per-thread",
    "kernel on another thread's per-thread",
    "kernel on a destroyed stream",
    "kernel behind another stream's event",
    "copy between device blocks",
    "copy from pinned memory",
    "memset",
    "host function, then kernel",
    "unsatisfied wait, then kernel",
    "graph launch",
    "early start behind a kernel",
];

const LATER: &[&str] = &[
    "kernel on legacy",
    "kernel on blocking",
    "kernel on an existing non-blocking stream",
    "kernel on a new stream",
    "kernel on a never used stream",
    "kernel on per-thread",
    "kernel on another thread's per-thread",
    "copy between device blocks",
    "synchronous copy from the host",
    "memset",
    "graph launch",
    "early start on an idle stream",
];

struct Cells {
    driver: Driver,
    blocking: Stream,
    non_blocking: Stream,
    other: Stream,
    never_used: Vec<Stream>,
    source: u64,
    pinned: u64,
    flag: u64,
}

fn main() {
    let driver = Driver::open(Lookup::ProcAddress).unwrap_or_else(|error| stop(&error));
    let cells = prepare(driver).unwrap_or_else(|code| stop(&format!("error {code}")));
    let (mut cells, mut failed, mut same) = (cells, 0, 0);
    for earlier in EARLIER {
        for later in LATER {
            match cells.run(earlier, later) {
                Ok((true, again)) => same += u32::from(again),
                Ok((false, _)) => {
                    failed += 1;
                    println!("{earlier} / {later}: wrong");
                }
                Err(code) => {
                    failed += 1;
                    println!("{earlier} / {later}: error {code}");
                }
            }
        }
    }
    println!("matrix: {} cells, {failed} failed", EARLIER.len() * LATER.len());
    eprintln!("matrix: the same address in {same} cells");
    if let Some(races) = cells.driver.races() {
        println!("matrix: {races} races");
    }
    std::process::exit(i32::from(failed != 0));
}

fn prepare(driver: Driver) -> Outcome<Cells> {
    let never_used =
        (0..EARLIER.len()).map(|_| driver.stream()).collect::<Outcome<Vec<Stream>>>()?;
    let cells = Cells {
        blocking: driver.blocking_stream()?,
        non_blocking: driver.stream()?,
        other: driver.stream()?,
        never_used,
        source: driver.alloc(BYTES)?,
        pinned: driver.pinned(BYTES)?,
        flag: driver.alloc(8)?,
        driver,
    };
    cells.driver.launch("fill", LEGACY_NULL, &[cells.source, BYTES as u64, LATER_WORD, 0])?;
    for word in 0..BYTES as u64 / 8 {
        cells.driver.host_write(cells.pinned + 8 * word, EARLIER_WORD);
    }
    cells.driver.synchronize()?;
    Ok(cells)
}

impl Cells {
    /// Returns whether every word is the later work's, and whether the block got the same address.
    fn run(&mut self, earlier: &str, later: &str) -> Outcome<(bool, bool)> {
        let driver = &self.driver;
        let block = driver.alloc(BYTES)?;
        self.earlier(earlier, block)?;
        driver.free(block)?;
        let again = driver.alloc(BYTES)?;
        let never_used = if later.contains("never used") { self.never_used.pop() } else { None };
        self.later(later, again, never_used)?;
        self.driver.synchronize()?;
        let words = self.driver.read_words(again, BYTES / 8)?;
        self.driver.free(again)?;
        Ok((words.iter().all(|word| *word == LATER_WORD), block == again))
    }

    fn earlier(&self, kind: &str, block: u64) -> Outcome {
        let driver = &self.driver;
        let fill = [block, BYTES as u64, EARLIER_WORD, LATE_NS];
        match kind {
            "kernel on legacy" => driver.launch("late_fill", LEGACY_NULL, &fill),
            "kernel on blocking" => driver.launch("late_fill", self.blocking, &fill),
            "kernel on non-blocking" => driver.launch("late_fill", self.non_blocking, &fill),
            "kernel on per-thread" => driver.launch("late_fill", PER_THREAD, &fill),
            "kernel on another thread's per-thread" => self.in_thread("late_fill", &fill),
            "kernel on a destroyed stream" => {
                let stream = driver.stream()?;
                driver.launch("late_fill", stream, &fill)?;
                driver.destroy_stream(stream)
            }
            "kernel behind another stream's event" => {
                let event = driver.event()?;
                driver.launch("delay", self.other, &[LATE_NS])?;
                driver.record(event, self.other)?;
                driver.stream_waits(self.non_blocking, event)?;
                driver.destroy_event(event)?;
                driver.launch("fill", self.non_blocking, &[block, BYTES as u64, EARLIER_WORD, 0])
            }
            "copy between device blocks" => {
                driver.launch("delay", self.non_blocking, &[LATE_NS])?;
                driver.copy(block, self.source, BYTES, self.non_blocking)
            }
            "copy from pinned memory" => {
                driver.launch("delay", self.non_blocking, &[LATE_NS])?;
                driver.copy(block, self.pinned, BYTES, self.non_blocking)
            }
            "memset" => {
                driver.launch("delay", self.non_blocking, &[LATE_NS])?;
                driver.memset(block, 0x11, BYTES, self.non_blocking)
            }
            "host function, then kernel" => {
                driver.host_function(self.non_blocking, nothing, core::ptr::null_mut())?;
                driver.launch("late_fill", self.non_blocking, &fill)
            }
            "unsatisfied wait, then kernel" => self.behind_a_wait(block),
            "graph launch" => self.graph(self.non_blocking, "late_fill", &fill),
            "early start behind a kernel" => {
                driver.launch("delay", self.non_blocking, &[LATE_NS / 2])?;
                driver.launch_early("late_fill", self.non_blocking, &fill)
            }
            other => unreachable!("{other}"),
        }
    }

    fn later(&self, kind: &str, block: u64, never_used: Option<Stream>) -> Outcome {
        let driver = &self.driver;
        let fill = [block, BYTES as u64, LATER_WORD, 0];
        match kind {
            "kernel on legacy" => driver.launch("fill", LEGACY_NULL, &fill),
            "kernel on blocking" => driver.launch("fill", self.blocking, &fill),
            "kernel on an existing non-blocking stream" => driver.launch("fill", self.other, &fill),
            "kernel on a new stream" => driver.launch("fill", driver.stream()?, &fill),
            "kernel on a never used stream" => {
                driver.launch("fill", never_used.expect("one for each row"), &fill)
            }
            "kernel on per-thread" => driver.launch("fill", PER_THREAD, &fill),
            "kernel on another thread's per-thread" => self.in_thread("fill", &fill),
            "copy between device blocks" => driver.copy(block, self.source, BYTES, self.other),
            "synchronous copy from the host" => {
                driver.write_words(block, &vec![LATER_WORD; BYTES / 8])
            }
            "memset" => driver.memset(block, 0x22, BYTES, self.other),
            "graph launch" => self.graph(self.other, "fill", &fill),
            "early start on an idle stream" => driver.launch_early("fill", self.other, &fill),
            other => unreachable!("{other}"),
        }
    }

    /// Launches a kernel on the per-thread default stream of a thread that then ends.
    fn in_thread(&self, kernel: &str, arguments: &[u64]) -> Outcome {
        let context = self.driver.context();
        std::thread::scope(|scope| {
            let launch = || {
                self.driver.set_context(context)?;
                self.driver.launch(kernel, PER_THREAD, arguments)
            };
            scope.spawn(launch).join().expect("a thread that launches")
        })
    }

    /// Makes the stream wait for a word that a kernel on another stream sets later.
    fn behind_a_wait(&self, block: u64) -> Outcome {
        static ROUND: AtomicU64 = AtomicU64::new(1);
        let round = ROUND.fetch_add(1, Ordering::Relaxed);
        let wait = self.driver.functions.cuStreamWaitValue64;
        // SAFETY: the stream and the device address are alive; flag 0 waits for "at least".
        cachealloc_tests::driver::check(unsafe { wait(self.non_blocking, self.flag, round, 0) })?;
        let fill = [block, BYTES as u64, EARLIER_WORD, 0];
        self.driver.launch("fill", self.non_blocking, &fill)?;
        self.driver.launch("delay", self.other, &[LATE_NS])?;
        self.driver.launch("set", self.other, &[self.flag, round])
    }

    fn graph(&self, stream: Stream, kernel: &str, arguments: &[u64]) -> Outcome {
        let driver = &self.driver;
        driver.begin_capture(stream, RELAXED)?;
        driver.launch(kernel, stream, arguments)?;
        let graph = driver.end_capture(stream)?;
        let executable = driver.instantiate(graph)?;
        driver.launch_graph(executable, stream)?;
        driver.destroy_executable(executable)?;
        driver.destroy_graph(graph)
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

fn stop(why: &str) -> ! {
    eprintln!("matrix: {why}");
    std::process::exit(2)
}
