//! Follows the frames of a thread, from the innermost outwards.

use crate::host::Interpreter;
use crate::layout::{First, Frames, Internal};
use crate::memory::{Direct, Memory, is_plausible};
use crate::{Captured, codes, word};

/// A frame that runs Python code, or the remainder of an evaluation whose frame is gone.
pub(crate) struct Frame {
    /// Code object, or `GONE` if the evaluation has left its only frame and runs finalizers of
    /// objects in that frame.
    pub code: u64,
    /// Offset of the current instruction from the first one; negative if none has run.
    pub offset_bytes: i32,
    pub boundary: bool,
    /// For a boundary: the interpreter's own frame outside it, if there is one.
    pub mark: u64,
}

pub(crate) const GONE: u64 = 0;

/// An impossible state that a walk has found.
pub(crate) type Fault = &'static str;

/// `FRAME_OWNED_BY_GENERATOR`: such a frame counts as started from its creation.
const OWNED_BY_GENERATOR: u8 = 1;
/// From this owner on, frames are the interpreter's marks: `FRAME_OWNED_BY_CSTACK` (3.12, 3.13),
/// `FRAME_OWNED_BY_INTERPRETER` and later values (3.14).
const OWNERS_OF_MARKS: u8 = 3;
/// Offset of the interpreter in a thread's state: `PyThreadState.interp`, in every version. Where a
/// version publishes its layout, the offset is part of the required shape.
const STATE_INTERPRETER: u64 = 16;
/// Maximum number of frames without output (marks, frames that have not started) before a walk
/// gives up. There is at most one between two shown frames; recursion ends at a thousand or so.
const SILENT_COUNT_MAX: usize = 1 << 20;

/// Captures the calling thread's frames with direct reads.
pub(crate) fn capture(interpreter: &Interpreter, out: &mut [u64]) -> Captured {
    let mut captured = Captured::default();
    let Some(thread_state) = interpreter.thread_state() else { return captured };
    // SAFETY:
    // 1. `self_check` has accepted the layout, otherwise this function is not called
    //    (`host::proven`).
    // 2. The state is the calling thread's. Its frames hold their code objects, and those their
    //    names; none of them can change before this thread returns from the hook.
    let memory = unsafe { Direct::new() };
    let is_main = memory.word(thread_state + STATE_INTERPRETER) == Some(interpreter.main());
    // A fault ends the stack where it is found; the frames read before it are valid.
    let _ = frames(interpreter, &memory, thread_state, |frame| {
        let Some(slot) = out.get_mut(captured.count) else {
            captured.truncated = true;
            return false;
        };
        let code = match frame.code {
            GONE => codes::UNKNOWN,
            code => codes::number(interpreter, &memory, code, is_main),
        };
        *slot = word::pack(code, frame.offset_bytes, frame.boundary);
        captured.count += 1;
        true
    });
    captured
}

/// Reports the marks of the calling thread with direct reads, for as many frames as a capture would
/// show.
pub(crate) fn marks(interpreter: &Interpreter, frames_max: usize, mut note: impl FnMut(u64)) {
    let Some(thread_state) = interpreter.thread_state() else { return };
    // SAFETY: see `capture`.
    let memory = unsafe { Direct::new() };
    let mut left = frames_max;
    let _ = frames(interpreter, &memory, thread_state, |frame| {
        if left > 0 && frame.mark != 0 {
            note(frame.mark);
        }
        left = left.saturating_sub(1);
        left > 0
    });
}

/// Passes each frame to `visit` until it stops.
#[inline(always)]
pub(crate) fn frames<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    thread_state: u64,
    visit: impl FnMut(Frame) -> bool,
) -> Result<(), Fault> {
    let first = match interpreter.layout.first {
        First::Direct { frame } => memory.word(thread_state + frame),
        First::ThroughCFrame { cframe, frame } => {
            let cframe = memory.object(thread_state + cframe).ok_or("no C frame")?;
            memory.word(cframe + frame)
        }
    };
    let first = first.ok_or("the thread's state is not readable")?;
    match &interpreter.layout.frames {
        Frames::Internal(layout) => internal(interpreter, layout, memory, first, visit),
        Frames::Objects { .. } => objects(interpreter, memory, first, visit),
    }
}

#[inline(always)]
fn internal<M: Memory>(
    interpreter: &Interpreter,
    layout: &Internal,
    memory: &M,
    first: u64,
    mut visit: impl FnMut(Frame) -> bool,
) -> Result<(), Fault> {
    const UNREADABLE: Fault = "a frame is not readable";
    let mut at = first;
    let mut silent_count = 0;
    let mut is_empty = true;
    while at != 0 {
        if !is_plausible(at) {
            return Err("a frame's address cannot be one");
        }
        let previous = memory.word(at + layout.previous).ok_or(UNREADABLE)?;
        let owner = memory.byte(at + layout.owner).ok_or(UNREADABLE)?;
        let code = memory.word(at + layout.code).ok_or(UNREADABLE)? & !layout.code_tags;
        let shows = owner < OWNERS_OF_MARKS && is_code(interpreter, memory, code)?;
        let offset_bytes = match shows {
            true => {
                let instruction = memory.word(at + layout.instruction).ok_or(UNREADABLE)?;
                let start = start(layout, memory, at, code).ok_or(UNREADABLE)?;
                instruction.wrapping_sub(start) as i32
            }
            false => 0,
        };
        if shows && has_started(layout, memory, code, owner, offset_bytes)? {
            let (boundary, mark) = match layout.entry {
                Some(entry) => (memory.byte(at + entry).ok_or(UNREADABLE)? != 0, 0),
                None if is_mark(layout, memory, previous)? => (true, previous),
                None => (false, 0),
            };
            is_empty = false;
            if !visit(Frame { code, offset_bytes, boundary, mark }) {
                return Ok(());
            }
        } else {
            // Outside the outermost frame there may be a mark that belongs to no evaluation.
            let is_mark = layout.entry.is_none() && owner >= OWNERS_OF_MARKS && previous != 0;
            if is_mark && core::mem::replace(&mut is_empty, true) {
                let gone = Frame { code: GONE, offset_bytes: 0, boundary: true, mark: at };
                if !visit(gone) {
                    return Ok(());
                }
            }
            silent_count += 1;
            if silent_count == SILENT_COUNT_MAX {
                return Err("the chain of frames has no end");
            }
        }
        at = previous;
    }
    Ok(())
}

/// Returns the address of the first instruction that a frame runs.
#[inline(always)]
fn start<M: Memory>(layout: &Internal, memory: &M, frame: u64, code: u64) -> Option<u64> {
    let own = code + layout.instructions;
    let Some(copies) = layout.copies else { return Some(own) };
    match memory.half(frame + copies.index)? {
        0 => Some(own),
        index => memory.word(memory.object(code + copies.array)? + 8 + 8 * u64::from(index)),
    }
}

/// Returns whether a frame belongs to Python code. Frames of `None` and foreign executables (3.13
/// on) do not.
#[inline(always)]
fn is_code<M: Memory>(interpreter: &Interpreter, memory: &M, code: u64) -> Result<bool, Fault> {
    if !is_plausible(code) {
        return Err("a frame's code has an address that cannot be one");
    }
    let kind = memory
        .word(code + interpreter.layout.objects.class)
        .ok_or("a frame's code is not readable")?;
    Ok(kind == interpreter.code_type)
}

/// Returns whether a frame has started. Its own first instructions set it up; until they have run,
/// the interpreter itself does not show it.
#[inline(always)]
fn has_started<M: Memory>(
    layout: &Internal,
    memory: &M,
    code: u64,
    owner: u8,
    offset_bytes: i32,
) -> Result<bool, Fault> {
    const UNIT_BYTES: i32 = 2;
    let first_traceable = memory.half(code + layout.first_traceable).ok_or("unreadable code")?;
    Ok(owner == OWNED_BY_GENERATOR || offset_bytes >= first_traceable as i32 * UNIT_BYTES)
}

/// Returns whether the frame outside this one is the interpreter's mark of an entry from C.
#[inline(always)]
fn is_mark<M: Memory>(layout: &Internal, memory: &M, frame: u64) -> Result<bool, Fault> {
    if frame == 0 {
        return Ok(true);
    }
    if !is_plausible(frame) {
        return Err("a frame's address cannot be one");
    }
    let owner = memory.byte(frame + layout.owner).ok_or("a frame is not readable")?;
    Ok(owner >= OWNERS_OF_MARKS)
}

#[inline(always)]
fn objects<M: Memory>(
    interpreter: &Interpreter,
    memory: &M,
    first: u64,
    mut visit: impl FnMut(Frame) -> bool,
) -> Result<(), Fault> {
    let Frames::Objects { back, code, last_instruction, unit_bytes } = interpreter.layout.frames
    else {
        return Err("frames of another kind");
    };
    let mut at = first;
    while at != 0 {
        let class = || memory.word(at + interpreter.layout.objects.class);
        if !is_plausible(at) || class() != Some(interpreter.frame_type) {
            return Err("a frame is not one");
        }
        let code = memory.word(at + code).ok_or("a frame is not readable")?;
        if !is_code(interpreter, memory, code)? {
            return Err("a frame's code is not one");
        }
        let last = memory.half(at + last_instruction).ok_or("a frame is not readable")? as i32;
        let offset_bytes = last.saturating_mul(unit_bytes);
        if !visit(Frame { code, offset_bytes, boundary: true, mark: 0 }) {
            return Ok(());
        }
        at = memory.word(at + back).ok_or("a frame is not readable")?;
    }
    Ok(())
}
