//! The order on which one thread may rely: for each of its streams, and for the host, how much of
//! every stream's work is complete before the next operation there.

use cachealloc_tests::driver::{Driver, LEGACY, Outcome, PER_THREAD, Stream};

/// Number of operations of each stream that lie in the past.
pub type Clock = Vec<u32>;

pub fn join(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

pub fn covers(clock: &Clock, other: &Clock) -> bool {
    clock.iter().zip(other).all(|(own, other)| own >= other)
}

pub struct Streams {
    pub handles: Vec<Stream>,
    blocking: Vec<bool>,
    /// Operations known to the last operation of each stream, itself included.
    clocks: Vec<Clock>,
    host: Clock,
}

/// Index of the legacy stream among a thread's streams.
const OF_LEGACY: usize = 0;

impl Streams {
    pub fn new(driver: &Driver, non_blocking_count: usize) -> Outcome<Streams> {
        let mut handles = vec![LEGACY, PER_THREAD, driver.blocking_stream()?];
        let mut blocking = vec![true; 3];
        for _ in 0..non_blocking_count {
            handles.push(driver.stream()?);
            blocking.push(false);
        }
        let none = vec![0; handles.len()];
        Ok(Streams { clocks: vec![none.clone(); handles.len()], handles, blocking, host: none })
    }

    pub fn count(&self) -> usize {
        self.handles.len()
    }

    pub fn nothing(&self) -> Clock {
        vec![0; self.count()]
    }

    /// Operations that precede an operation submitted to this stream now.
    pub fn past(&self, stream: usize) -> Clock {
        let mut past = self.clocks[stream].clone();
        join(&mut past, &self.host);
        if stream == OF_LEGACY {
            let blocking =
                self.clocks.iter().zip(&self.blocking).filter(|(_, blocking)| **blocking);
            blocking.for_each(|(clock, _)| join(&mut past, clock));
        } else if self.blocking[stream] {
            join(&mut past, &self.clocks[OF_LEGACY]);
        }
        past
    }

    /// Submits an operation, and returns the clock that all later work must cover.
    pub fn submit(&mut self, stream: usize) -> Clock {
        let mut clock = self.past(stream);
        clock[stream] += 1;
        self.clocks[stream] = clock;
        let mut own = self.nothing();
        own[stream] = self.clocks[stream][stream];
        own
    }

    /// Adds a point to the stream that is not work: the legacy stream need not wait for it.
    pub fn mark(&mut self, stream: usize) -> Clock {
        self.clocks[stream][stream] += 1;
        let mut own = self.nothing();
        own[stream] = self.clocks[stream][stream];
        own
    }

    /// Records that the stream waits for the operations in this clock.
    pub fn wait(&mut self, stream: usize, clock: &Clock) {
        join(&mut self.clocks[stream], clock);
    }

    pub fn host(&self) -> &Clock {
        &self.host
    }

    /// Records that the host has waited for the operations in this clock.
    pub fn host_waited(&mut self, clock: &Clock) {
        join(&mut self.host, clock);
    }

    /// Records that the host has waited for this stream: for the stream's work, and with the legacy
    /// stream also for that of the blocking streams.
    pub fn host_waited_for(&mut self, stream: usize) {
        let over =
            if stream == OF_LEGACY { self.past(stream) } else { self.clocks[stream].clone() };
        self.host_waited(&over);
    }

    /// Records that the host has waited for everything that this thread has submitted.
    pub fn host_waited_for_all(&mut self) {
        for clock in &self.clocks {
            join(&mut self.host, clock);
        }
    }
}
