//! The capturing streams of the whole process: while there is one, no barrier is made.
//!
//! Both barrier calls invalidate captures, also those of other threads. A capture begins by any of
//! the begin calls on its origin stream and ends with End (successful or not), with its stream, or
//! with its context. Because End may happen unseen, the runtime queries the driver
//! (`cuStreamIsCapturing`) for each entry whenever the set decides something.
//!
//! * C1: entries are told apart by stream id; handles are used again for other streams.
//! * C2: the set is never smaller than the truth: an entry is made before the real Begin, however
//!   many there are.
//!
//! The runtime's lock guards the set. For the quick question "any at all?" the runtime mirrors
//! `is_empty` into an atomic under that lock.

use alloc::vec::Vec;

/// An origin stream of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capture {
    /// `cuStreamGetId`.
    pub stream_id: u64,
    /// The handle for queries of the driver.
    pub stream_handle: u64,
    /// `cuCtxGetId` of the stream's context.
    pub context_id: u64,
}

/// The result of `begin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// The entry is new. If the real Begin fails, `end` it.
    New,
    /// The stream was in the set: the real Begin will fail, and the first capture goes on. Keep it.
    Already,
}

/// The set of capturing streams.
#[derive(Clone, Debug)]
pub struct Captures {
    entries: Vec<Capture>,
}

impl Captures {
    /// Returns an empty set.
    pub const fn new() -> Captures {
        Captures { entries: Vec::new() }
    }

    /// Adds a capture. Call it before the real Begin.
    pub fn begin(&mut self, capture: Capture) -> Begun {
        if self.iter().any(|entry| entry.stream_id == capture.stream_id) {
            return Begun::Already;
        }
        self.entries.push(capture);
        Begun::New
    }

    /// Removes a capture. Call it after the real End if the stream no longer captures, or after a
    /// failed Begin that was `New`. Returns `true` if the stream was in the set.
    ///
    /// An End that fails with "unjoined work" or "invalidated" ends the capture; one that fails
    /// because it came from the wrong thread or stream does not. Ask the driver which it was.
    pub fn end(&mut self, stream_id: u64) -> bool {
        self.drop_where(|entry| entry.stream_id == stream_id) != 0
    }

    /// Removes the capture of a destroyed stream.
    pub fn stream_destroyed(&mut self, stream_id: u64) -> bool {
        self.end(stream_id)
    }

    /// Removes the captures of a context that was destroyed with all its streams. Returns their
    /// number.
    pub fn context_destroyed(&mut self, context_id: u64) -> usize {
        self.drop_where(|entry| entry.context_id == context_id)
    }

    /// Drops every capture that has ended, and returns how many. `still` queries the driver; if the
    /// driver does not respond (an error such as 906), it must return `true`.
    pub fn keep(&mut self, mut still: impl FnMut(&Capture) -> bool) -> usize {
        self.drop_where(|entry| !still(entry))
    }

    /// Returns whether no stream captures: only then may a barrier be made.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries.
    pub fn iter(&self) -> impl Iterator<Item = &Capture> {
        self.entries.iter()
    }

    fn drop_where(&mut self, mut over: impl FnMut(&Capture) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| !over(entry));
        before - self.entries.len()
    }
}

impl Default for Captures {
    fn default() -> Captures {
        Captures::new()
    }
}
