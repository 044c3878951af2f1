//! The first walk of the process. Its reads cannot fault, and it checks everything that later walks
//! assume. Its result decides whether later walks happen.

use crate::Captured;
use crate::host::{self, Interpreter};
use crate::memory::{Checked, Memory};
use crate::text::characters;
use crate::walk::{self, Fault, GONE};

/// Number of frames checked: enough to cross entries from C, generators and module level.
const FRAMES_COUNT_MAX: usize = 256;

/// Captures before the check has succeeded. Each thread that comes here concurrently does the
/// check.
#[cold]
pub(crate) fn capture(out: &mut [u64]) -> Captured {
    let Some(interpreter) = host::known() else { return Captured::default() };
    let Some(thread_state) = interpreter.thread_state() else { return Captured::default() };
    let Some(memory) = Checked::new() else { return Captured::default() };
    match prove(interpreter, &memory, thread_state) {
        // No frames: nothing to check, and nothing to show.
        Ok(0) => return Captured::default(),
        Ok(_) => host::accept(interpreter),
        Err(why) => {
            host::refuse(interpreter, why);
            return Captured::default();
        }
    }
    walk::capture(interpreter, out)
}

/// Checks the frames. Returns their number if all are valid.
fn prove(interpreter: &Interpreter, memory: &Checked, thread_state: u64) -> Result<usize, Fault> {
    let mut count = 0;
    let mut fault = None;
    walk::frames(interpreter, memory, thread_state, |frame| {
        if frame.code == GONE {
            return true;
        }
        fault = code_fault(interpreter, memory, frame.code);
        count += 1;
        fault.is_none() && count < FRAMES_COUNT_MAX
    })?;
    fault.map_or(Ok(count), Err)
}

/// Returns the defect of a code object, if any. The types of three of its fields, at offsets of
/// three different kinds, make it unlikely that the layout is wrong elsewhere.
fn code_fault(interpreter: &Interpreter, memory: &Checked, code: u64) -> Option<Fault> {
    const LINE_MAX: u32 = 1 << 28;
    let layout = &interpreter.layout.code;
    let text_at = |field: u64| {
        let object = memory.object(code + field);
        object.and_then(|object| characters(interpreter, memory, object)).is_some()
    };
    if !text_at(layout.name) {
        return Some("a code's name is no text");
    }
    if !text_at(layout.filename) {
        return Some("a code's file name is no text");
    }
    let lines = memory.object(code + layout.line_table);
    let kind = lines.and_then(|lines| memory.word(lines + interpreter.layout.objects.class));
    if kind != Some(interpreter.bytes_type) {
        return Some("a code's line table is none");
    }
    let first_line = memory.half(code + layout.first_line);
    (first_line.is_none_or(|line| line > LINE_MAX)).then_some("a code's first line is none")
}
