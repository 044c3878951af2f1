//! The allocations and frees of a program, in order, without addresses.

use std::collections::HashMap;

use cachealloc_analysis::model::{Action, Device, Snapshot};
use cachealloc_analysis::{Lifetimes, Moment};

/// One allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub bytes: u64,
    /// Stream in whose order it is allocated, or 0 if it is ordered with everything, as by
    /// `cudaMalloc`.
    pub stream: u64,
    /// Whether the driver serves it directly, and takes it back at its free: arrays, pools, virtual
    /// memory.
    pub by_driver: bool,
}

/// One step, with the number of the allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Allocate(u32),
    Free(u32),
    /// A free in the order of the allocation's stream. Others get the memory when work there has
    /// ended.
    FreeOnStream(u32),
    /// Tenths of a second that have passed since the first known time.
    Time(u32),
}

const TENTH_US: u64 = 100_000;
/// Longest time, in years. Everything later is assumed to happen then.
const TENTHS_MAX: u32 = u32::MAX / 2;

#[derive(Clone, Debug, Default)]
pub struct Requests {
    asked: Vec<Asked>,
    steps: Vec<Step>,
    held_bytes: u64,
    peak_bytes: u64,
    /// Number of requests that failed when they were recorded.
    failed_count: u64,
    /// First known time, or `None` without any.
    first_us: Option<u64>,
    tenths: u32,
    /// Moment of the history at which most is held, or was requested in vain.
    peak_moment: Moment,
}

impl Requests {
    /// Returns the requests of one device of a snapshot. Blocks older than its history come
    /// first. With `with_failed`, a failed request is made again, and what it gets is freed
    /// immediately, because it is unknown what would have followed.
    pub fn of(
        snapshot: &Snapshot,
        device: &Device,
        lifetimes: &Lifetimes,
        with_failed: bool,
    ) -> Requests {
        let by_driver = if snapshot.is_ours() { by_driver(device) } else { Vec::new() };
        // In PyTorch's files, streams are those of its own cache, which requests memory by
        // `cudaMalloc`.
        let stream_of = |stream| if snapshot.is_ours() { stream } else { 0 };
        let mut frees: Vec<(Moment, u32)> = Vec::with_capacity(lifetimes.all.len());
        frees.extend((0..).zip(&lifetimes.all).map(|(index, life)| (life.reusable, index)));
        frees.retain(|(moment, _)| *moment <= lifetimes.last);
        frees.sort_unstable();
        let mut births: Vec<(Moment, u32)> = Vec::with_capacity(lifetimes.all.len());
        births.extend((0..).zip(&lifetimes.all).map(|(index, life)| (life.begin, index)));
        births.sort_by_key(|(moment, _)| *moment);

        let mut requests = Requests::default();
        let mut numbers = vec![None; lifetimes.all.len()];
        let (mut frees, mut births) = (frees.into_iter().peekable(), births.into_iter().peekable());
        for moment in 0..=lifetimes.last {
            let happened = moment.checked_sub(1).and_then(|it| device.entries.get(it as usize));
            happened.into_iter().for_each(|entry| requests.time_is(entry.time_us));
            // Entry `moment - 1` has happened. What ended with it without an entry ended before it.
            while let Some((_, index)) = frees.next_if(|(at, _)| *at == moment) {
                let life = &lifetimes.all[index as usize];
                match numbers[index as usize] {
                    // If the free waited, the memory is free for every request by now.
                    Some(number) if life.end == life.reusable && stream_of(life.stream) != 0 => {
                        requests.free_on_stream(number);
                    }
                    Some(number) => requests.free(number),
                    None => {}
                }
            }
            while let Some((_, index)) = births.next_if(|(at, _)| *at == moment) {
                let life = &lifetimes.all[index as usize];
                let entry = life.allocated_by();
                let by_driver = entry.is_some_and(|it| by_driver.get(it).copied().unwrap_or(false));
                let stream = stream_of(life.stream);
                numbers[index as usize] =
                    requests.allocate_at(moment, Asked { bytes: life.bytes, stream, by_driver });
            }
            let Some(entry) = device.entries.get(moment as usize) else { continue };
            if entry.action == Action::OutOfMemory && with_failed {
                requests.time_is(entry.time_us);
                requests.failed_count += 1;
                let stream = stream_of(entry.stream);
                let asked = Asked { bytes: entry.bytes, stream, by_driver: false };
                if let Some(number) = requests.allocate_at(moment, asked) {
                    requests.free(number);
                }
            }
        }
        requests
    }

    /// Returns the allocation's number, or `None` for 0 bytes, for which no allocator has a block.
    pub fn allocate(&mut self, asked: Asked) -> Option<u32> {
        let number = u32::try_from(self.asked.len()).ok().filter(|_| asked.bytes > 0)?;
        self.asked.push(asked);
        self.held_bytes = self.held_bytes.saturating_add(asked.bytes);
        if self.held_bytes > self.peak_bytes {
            self.peak_bytes = self.held_bytes;
        }
        self.steps.push(Step::Allocate(number));
        Some(number)
    }

    pub fn free(&mut self, number: u32) {
        self.held_bytes = self.held_bytes.saturating_sub(self.asked(number).bytes);
        self.steps.push(Step::Free(number));
    }

    pub fn free_on_stream(&mut self, number: u32) {
        self.held_bytes = self.held_bytes.saturating_sub(self.asked(number).bytes);
        self.steps.push(Step::FreeOnStream(number));
    }

    /// Sets the time, in microseconds since some moment; 0 stands for an unknown time. Memory that
    /// is unused for seconds is released.
    pub fn time_is(&mut self, us: u64) {
        if us == 0 {
            return;
        }
        let passed_us = us.saturating_sub(*self.first_us.get_or_insert(us));
        let tenths = (passed_us / TENTH_US).min(TENTHS_MAX.into()) as u32;
        if tenths > self.tenths {
            self.tenths = tenths;
            self.steps.push(Step::Time(tenths));
        }
    }

    fn allocate_at(&mut self, moment: Moment, asked: Asked) -> Option<u32> {
        let before_bytes = self.peak_bytes;
        let number = self.allocate(asked);
        if self.peak_bytes > before_bytes {
            self.peak_moment = moment;
        }
        number
    }

    pub fn asked(&self, number: u32) -> Asked {
        self.asked[number as usize]
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the number of allocations.
    pub fn count(&self) -> usize {
        self.asked.len()
    }

    pub fn largest_bytes(&self) -> u64 {
        self.asked.iter().map(|asked| asked.bytes).max().unwrap_or(0)
    }

    /// Whether the times of the requests are known.
    pub fn has_times(&self) -> bool {
        self.first_us.is_some()
    }

    /// Whether any request is ordered by a stream.
    pub fn has_streams(&self) -> bool {
        self.asked.iter().any(|asked| asked.stream != 0 && !asked.by_driver)
    }

    pub fn failed_count(&self) -> u64 {
        self.failed_count
    }

    /// Returns the most that is held, in requested bytes: no smaller device suffices.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Returns the moment of the history at which that is held.
    pub fn peak_moment(&self) -> Moment {
        self.peak_moment
    }
}

/// Determines, for the entries of a history of the library, which allocations the driver served
/// directly. Each of those is recorded as a segment with one block, which are allocated and freed
/// together. A segment of the cache that does the same differs in nothing that affects the result.
fn by_driver(device: &Device) -> Vec<bool> {
    let entries = &device.entries;
    let mut by_driver = vec![false; entries.len()];
    let mut alone: HashMap<u64, usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let of_this = |other: Option<usize>, action| {
            let other = other.and_then(|other| entries.get(other));
            other.is_some_and(|it| it.action == action && it.address == entry.address)
        };
        match entry.action {
            Action::Alloc => {
                let before = index.checked_sub(1);
                let is_whole = before.is_some_and(|it| entries.at(it).bytes == entry.bytes);
                alone.remove(&entry.address);
                if is_whole && of_this(before, Action::SegmentAlloc) {
                    alone.insert(entry.address, index);
                    // No segment of the cache has such a size.
                    by_driver[index] = !entry.bytes.is_multiple_of(SEGMENTS_UNIT_BYTES);
                }
            }
            Action::Free => {
                if let Some(begun) = alone.remove(&entry.address) {
                    by_driver[begun] = of_this(Some(index + 1), Action::SegmentFree);
                }
            }
            _ => {}
        }
    }
    by_driver
}

/// Unit to which each segment of the cache is rounded up, except those for one last request.
const SEGMENTS_UNIT_BYTES: u64 = cachealloc_core::policy::BLOCK_BYTES_MIN;
