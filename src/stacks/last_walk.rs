//! The last walk of a thread, so that the next one need not look up the rules of the same frames
//! again.
//!
//! Most walks of a thread meet the outer frames of the walk before. The step from a frame to its
//! caller depends on the frame's registers, on its rule, which is the same within one epoch, and on
//! at most two words of the stack. So where the registers are those of a frame of the last walk,
//! and those words still have the same values, the caller is the same too. Each step is checked in
//! this way: a frame that was left and entered again has the same words, or is another frame.
//!
//! The caller may make a note of the frames of a walk. It stays until a walk returns other frames,
//! so a caller that finds it need not compare them.

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
/// Number of known frames that are checked and written in one round of a loop.
const TOGETHER: usize = 4;

/// Part of a walk on the current stack: how it steps from frame to frame.
pub(crate) trait Steps {
    /// Returns the caller of a frame.
    fn step(&mut self, at: Cursor, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop>;

    /// Takes note of a frame that the walk returns. Writes frames further out that are known.
    fn met<S: Shown>(&mut self, at: Cursor, room: &mut [S]) -> Met;
}

/// The frames outside of one that are known.
pub(crate) enum Met {
    /// The last one, from which the walk continues, and the number of frames written.
    Known { last: Cursor, count: usize },
    /// All of them, and the last one has no caller.
    AllKnown { count: usize },
}

/// Knows nothing of an earlier walk.
pub(crate) struct Anew;

impl Steps for Anew {
    #[inline(always)]
    fn step(&mut self, at: Cursor, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        at.caller(rule, memory)
    }

    #[inline(always)]
    fn met<S: Shown>(&mut self, at: Cursor, _: &mut [S]) -> Met {
        Met::Known { last: at, count: 0 }
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
    /// Whether the rule of the last frame says that it has no caller. `was_outermost`: at the end
    /// of the last walk.
    is_outermost: bool,
    was_outermost: bool,
    /// Whether all frames so far are those of the last walk.
    is_same: bool,
    /// How the last walk ended.
    stop: Stop,
    /// The caller's note about the frames of the last walk, or 0.
    note: u64,
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

/// Words on the stack, and their values. A step that reads only one has it twice.
#[derive(Clone, Copy)]
struct Read {
    addresses: [u64; WORDS_MAX],
    values: [u64; WORDS_MAX],
}

impl Read {
    /// A step that cannot be repeated from such words alone: a word that never has this value.
    fn unknown() -> Read {
        static ZERO: u64 = 0;
        Read { addresses: [(&raw const ZERO).addr() as u64; WORDS_MAX], values: [1; WORDS_MAX] }
    }

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
        is_same(0) && is_same(1)
    }
}

impl LastWalk {
    /// Returns a walk without frames, on the heap because of its size.
    pub fn new() -> Box<LastWalk> {
        let walk: Box<MaybeUninit<LastWalk>> = Box::new_zeroed();
        // SAFETY: all fields are numbers, truth values, and a `Stop`, which has a variant 0.
        unsafe { walk.assume_init() }
    }

    /// Returns the note that was made of the frames that the last walk has returned, or 0.
    #[inline(always)]
    pub fn note(&self) -> u64 {
        self.note
    }

    /// Makes a note of the frames that the last walk has returned.
    #[inline(always)]
    pub fn set_note(&mut self, note: u64) {
        self.note = note;
    }

    /// Takes the note, before a walk whose frames may be others.
    #[inline(always)]
    pub(crate) fn take_note(&mut self) -> u64 {
        replace(&mut self.note, 0)
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
        (self.taken, self.next, self.read) = (0, 0, Read::unknown());
        self.was_outermost = replace(&mut self.is_outermost, false);
        self.is_same = self.known != 0;
    }

    /// Ends the walk: what it has not met is forgotten. `note` was made of the last one.
    #[inline(always)]
    pub(crate) fn end(&mut self, stop: Stop, note: u64) {
        self.count = self.taken;
        // Where there is no room for more, the last frame may not be the last one kept.
        self.is_outermost &= self.taken < FRAMES_MAX;
        let is_same = self.is_same && self.taken == self.known && self.stop == stop;
        self.note = if is_same && matches!(stop, Stop::End | Stop::Full) { note } else { 0 };
        self.stop = stop;
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
        } else {
            self.is_same = false;
        }
    }

    /// Moves the frames of the last walk, the outermost of which may get lost.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        let gap = GAP.min(FRAMES_MAX - self.next);
        let known = self.known.min(FRAMES_MAX - gap).max(self.next);
        self.was_outermost &= known == self.known;
        self.frames.copy_within(self.next..known, self.next + gap);
        self.next += gap;
        self.known = known + gap;
    }
}

impl Steps for LastWalk {
    #[inline(always)]
    fn step(&mut self, at: Cursor, rule: Packed, memory: &mut impl Memory) -> Result<Cursor, Stop> {
        self.is_outermost = !rule.is_exclusive() && rule.is_outermost();
        let mut traced = Traced { memory, read: Read::unknown(), count: 0 };
        let caller = at.caller(rule, &mut traced);
        let Traced { read, count, .. } = traced;
        let is_repeatable = rule.is_exclusive()
            && (1..=WORDS_MAX).contains(&count)
            && read.addresses.iter().all(|address| *address >= at.stack_pointer);
        self.read = if is_repeatable { read } else { Read::unknown() };
        caller
    }

    #[inline(always)]
    fn met<S: Shown>(&mut self, at: Cursor, room: &mut [S]) -> Met {
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
        let is_same = known.is_some_and(|known| {
            known.instruction == instruction && known.stack_pointer == stack_pointer
        });
        let is_known = is_same && known.is_some_and(|known| known.frame_pointer == frame_pointer);
        // No frame further out has this stack pointer: the known one has been left.
        let is_left = known.is_some_and(|known| known.stack_pointer == stack_pointer);
        self.is_same &= is_same && self.next == self.taken;
        self.next += usize::from(is_left);
        self.take(frame);
        if is_known { self.repeat(at, room) } else { Met::Known { last: at, count: 0 } }
    }
}

impl LastWalk {
    /// Takes the frames outside of `at`, which was known, as long as their steps are the same.
    #[inline(always)]
    fn repeat<S: Shown>(&mut self, at: Cursor, room: &mut [S]) -> Met {
        let known = self.frames.get(self.next..self.known).unwrap_or_default();
        // SAFETY: `step` has read these words on a stack with this top, not below the stack pointer
        // of the frame that it left. The current walk has met that frame, with the same stack
        // pointer. The words of `Read::unknown` are in a static.
        let count = unsafe { repeated(known, room) };
        let last = known[..count].last();
        let last = last.map_or(at, |last| {
            Cursor::at(last.instruction, last.stack_pointer, last.frame_pointer)
        });
        if self.taken != self.next {
            self.frames.copy_within(self.next..self.next + count, self.taken);
        }
        self.taken += count;
        self.next += count;
        if self.was_outermost && self.next == self.known {
            self.is_outermost = true;
            return Met::AllKnown { count };
        }
        Met::Known { last, count }
    }
}

/// Writes the frames that are reached by the same steps as in the last walk, and returns their
/// number.
///
/// # Safety
///
/// The words of a frame can be read if those of all frames before it are unchanged.
#[inline(always)]
unsafe fn repeated<S: Shown>(known: &[Frame], room: &mut [S]) -> usize {
    // SAFETY: called in the order of the frames, and no more after one has changed.
    let is_unchanged = |frame: &Frame| unsafe { frame.read.is_unchanged() };
    let show = |frame: &Frame| S::of(frame.instruction, frame.stack_pointer);
    let shared = known.len().min(room.len());
    let (known, room) = (&known[..shared], &mut room[..shared]);
    let mut count = 0;
    // Several at once, since this loop is half of the cost of a walk.
    let (frames, slots) = (known.as_chunks::<TOGETHER>().0, room.as_chunks_mut::<TOGETHER>().0);
    for (frames, slots) in frames.iter().zip(slots) {
        if !frames.iter().all(is_unchanged) {
            break;
        }
        *slots = frames.each_ref().map(show);
        count += TOGETHER;
    }
    for (frame, slot) in known[count..].iter().zip(&mut room[count..]) {
        if !is_unchanged(frame) {
            break;
        }
        *slot = show(frame);
        count += 1;
    }
    count
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
