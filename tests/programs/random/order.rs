//! What one thread may rely on: for each of its streams, and for the host, how far every stream's
//! work is known to be done before the next operation there.

use cachealloc_tests::driver::{Driver, LEGACY, Outcome, PER_THREAD, Stream};

/// How many operations of each stream lie in the past.
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
    /// What the last operation of each stream knows, itself included.
    clocks: Vec<Clock>,
    host: Clock,
}

/// The place of the legacy stream among a thread's streams.
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

    /// What an operation submitted to this stream now comes after.
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

    /// An operation is submitted; the clock that all work after it must cover.
    pub fn submit(&mut self, stream: usize) -> Clock {
        let mut clock = self.past(stream);
        clock[stream] += 1;
        self.clocks[stream] = clock;
        let mut own = self.nothing();
        own[stream] = self.clocks[stream][stream];
        own
    }

    /// A place in the stream that is no work: the legacy stream need not stop for it.
    pub fn mark(&mut self, stream: usize) -> Clock {
        self.clocks[stream][stream] += 1;
        let mut own = self.nothing();
        own[stream] = self.clocks[stream][stream];
        own
    }

    /// The stream waits for what this clock holds.
    pub fn wait(&mut self, stream: usize, clock: &Clock) {
        join(&mut self.clocks[stream], clock);
    }

    pub fn host(&self) -> &Clock {
        &self.host
    }

    /// The host has waited for what this clock holds.
    pub fn host_waited(&mut self, clock: &Clock) {
        join(&mut self.host, clock);
    }

    /// The host has waited for this stream: for its own work, and with the legacy stream for the
    /// blocking ones'.
    pub fn host_waited_for(&mut self, stream: usize) {
        let over =
            if stream == OF_LEGACY { self.past(stream) } else { self.clocks[stream].clone() };
        self.host_waited(&over);
    }

    /// The host has waited for everything that this thread has submitted.
    pub fn host_waited_for_all(&mut self) {
        for clock in &self.clocks {
            join(&mut self.host, clock);
        }
    }
}
