//! The last walk of a thread, so that the next one need not look up the rules of the same frames
//! again.
//!
//! Most walks of a thread meet the outer frames of the walk before. The step from a frame to its
//! caller depends on the frame's registers, on its rule, which is the same within one epoch, and on
//! at most two words of the stack. So where the registers are those of a frame of the last walk,
//! and those words still have the same values, the caller is the same too. Each step is checked in
//! this way: a frame that was left and entered again has the same words, or is another frame.

use core::mem::{MaybeUninit, replace};

use crate::memory::Memory;
use crate::place::Shown;
use crate::processor::frame::Cursor;
use crate::processor::rule::Packed;
use crate::stop::Stop;

/// Maximum number of frames that are kept: as many as most callers have room for. Frames further
/// out are looked up again.
const FRAMES_MAX: usize = 160;
/// Number of places by which the known frames are moved when a walk needs one for a new frame.
const GAP: usize = 16;
/// Number of words that the step from a frame to its caller reads, at most.
const WORDS_MAX: usize = 2;

/// Part of a walk on the current stack: how it steps from frame to frame.
pub(crate) trait Steps {
    /// Returns the caller of a frame.
    fn step(&mut self, at: Cursor, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop>;

    /// Takes note of a frame that the walk returns. Writes frames further out that are known, and
    /// returns the last of them and their number.
    fn met<S: Shown>(&mut self, at: Cursor, room: &mut [S]) -> (Cursor, usize);
}

/// Knows nothing of an earlier walk.
pub(crate) struct Anew;

impl Steps for Anew {
    #[inline(always)]
    fn step(&mut self, at: Cursor, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        at.caller(rule, memory)
    }

    #[inline(always)]
    fn met<S: Shown>(&mut self, at: Cursor, _: &mut [S]) -> (Cursor, usize) {
        (at, 0)
    }
}

/// The last walk of a thread, for [`capture_again`](crate::capture_again).
pub struct LastWalk {
    epoch: u32,
    /// The top of the stack.
    top: u64,
    /// Number of frames. Zero during a walk: if it is never ended, nothing is known.
    count: usize,
    /// The frames of this walk up to `taken`, and from `next` to `known` those of the last walk
    /// that it has not met yet. `next` is not below `taken`.
    frames: [Frame; FRAMES_MAX],
    taken: usize,
    next: usize,
    known: usize,
    /// What the last step has read.
    read: Read,
}

/// A frame of a walk, innermost first.
#[derive(Clone, Copy)]
struct Frame {
    /// Zero if a signal interrupted the frame.
    instruction: u64,
    stack_pointer: u64,
    frame_pointer: u64,
    /// What the step to this frame has read.
    read: Read,
}

/// Words on the stack, and their values. A step that reads only one has it twice. The first address
/// is zero if the step cannot be repeated from these words alone.
#[derive(Clone, Copy)]
struct Read {
    addresses: [u64; WORDS_MAX],
    values: [u64; WORDS_MAX],
}

impl Read {
    const UNKNOWN: Read = Read { addresses: [0; WORDS_MAX], values: [0; WORDS_MAX] };

    /// Returns whether the step would read the same.
    ///
    /// # Safety
    ///
    /// The words can be read.
    #[inline(always)]
    unsafe fn is_unchanged(&self) -> bool {
        // SAFETY: the caller guarantees it.
        let is_same = |word: usize| unsafe {
            (self.addresses[word] as *const u64).read_volatile() == self.values[word]
        };
        self.addresses[0] != 0 && is_same(0) && is_same(1)
    }
}

impl LastWalk {
    /// Returns a walk without frames, on the heap because of its size.
    pub fn new() -> Box<LastWalk> {
        let walk: Box<MaybeUninit<LastWalk>> = Box::new_zeroed();
        // SAFETY: all fields are numbers.
        unsafe { walk.assume_init() }
    }

    /// Begins a walk of the calling thread on its own stack, which has this top.
    #[inline(always)]
    pub(crate) fn begin(&mut self, epoch: u32, top: u64) {
        // Another thread may have had this place. Its stack may have reached higher, and in another
        // epoch an address may have another rule.
        if self.epoch != epoch || self.top != top {
            (self.epoch, self.top, self.count) = (epoch, top, 0);
        }
        self.known = replace(&mut self.count, 0);
        (self.taken, self.next, self.read) = (0, 0, Read::UNKNOWN);
    }

    /// Ends the walk: what it has not met is forgotten.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        self.count = self.taken;
    }

    /// Adds a frame to this walk.
    #[inline(always)]
    fn take(&mut self, frame: Frame) {
        if self.taken == self.next && self.next < self.known {
            self.make_room();
        }
        if let Some(place) = self.frames.get_mut(self.taken) {
            *place = frame;
            self.taken += 1;
            self.next = self.next.max(self.taken);
        }
    }

    /// Moves the frames of the last walk, the outermost of which may get lost.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        let gap = GAP.min(FRAMES_MAX - self.next);
        let known = self.known.min(FRAMES_MAX - gap).max(self.next);
        self.frames.copy_within(self.next..known, self.next + gap);
        self.next += gap;
        self.known = known + gap;
    }
}

impl Steps for LastWalk {
    #[inline(always)]
    fn step(&mut self, at: Cursor, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        let mut traced = Traced { memory, read: Read::UNKNOWN, count: 0 };
        let caller = at.caller(rule, &mut traced);
        let Traced { read, count, .. } = traced;
        let is_repeatable = rule.is_exclusive()
            && (1..=WORDS_MAX).contains(&count)
            && read.addresses.iter().all(|address| *address >= at.stack_pointer);
        self.read = if is_repeatable { read } else { Read::UNKNOWN };
        caller
    }

    #[inline(always)]
    fn met<S: Shown>(&mut self, at: Cursor, room: &mut [S]) -> (Cursor, usize) {
        let Cursor { instruction, stack_pointer, frame_pointer, interrupted, .. } = at;
        while self.next < self.known && self.frames[self.next].stack_pointer < stack_pointer {
            self.next += 1;
        }
        let frame = Frame {
            instruction: if interrupted { 0 } else { instruction },
            stack_pointer,
            frame_pointer,
            read: self.read,
        };
        let known = self.frames[..self.known].get(self.next).filter(|_| !interrupted);
        let is_known = known.is_some_and(|known| {
            known.instruction == instruction
                && known.stack_pointer == stack_pointer
                && known.frame_pointer == frame_pointer
        });
        // No frame further out has this stack pointer: the known one has been left.
        let is_left = known.is_some_and(|known| known.stack_pointer == stack_pointer);
        self.next += usize::from(is_left);
        self.take(frame);
        if is_known { self.repeat(at, room) } else { (at, 0) }
    }
}

impl LastWalk {
    /// Takes the frames outside of `at`, which was known, as long as their steps are the same.
    #[inline(always)]
    fn repeat<S: Shown>(&mut self, at: Cursor, room: &mut [S]) -> (Cursor, usize) {
        let known = self.frames.get(self.next..self.known).unwrap_or_default();
        let mut count = 0;
        for (frame, slot) in known.iter().zip(room) {
            // SAFETY: `step` has read these words on a stack with this top, not below the stack
            // pointer of the frame that it left. The current walk has met that frame, with the same
            // stack pointer.
            if !unsafe { frame.read.is_unchanged() } {
                break;
            }
            *slot = S::of(frame.instruction, frame.stack_pointer);
            count += 1;
        }
        let Some(last) = known[..count].last() else { return (at, 0) };
        let last = Cursor::at(last.instruction, last.stack_pointer, last.frame_pointer);
        if self.taken != self.next {
            self.frames.copy_within(self.next..self.next + count, self.taken);
        }
        self.taken += count;
        self.next += count;
        (last, count)
    }
}

/// A memory that notes what is read.
struct Traced<'a, M> {
    memory: &'a mut M,
    read: Read,
    count: usize,
}

impl<M: Memory> Memory for Traced<'_, M> {
    #[inline(always)]
    fn word(&mut self, address: u64) -> Option<u64> {
        let value = self.memory.word(address)?;
        match self.count {
            0 => self.read = Read { addresses: [address; WORDS_MAX], values: [value; WORDS_MAX] },
            _ => (self.read.addresses[1], self.read.values[1]) = (address, value),
        }
        self.count += 1;
        Some(value)
    }

    #[inline(always)]
    fn holds(&self, address: u64) -> bool {
        self.memory.holds(address)
    }
}
