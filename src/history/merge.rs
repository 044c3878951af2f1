//! Merges two stacks of a thread: its native frames, and the frames of the Python interpreter that
//! runs in it.
//!
//! The native stack shows the interpreter at work: one frame of its evaluation loop for each time
//! that C code entered it. Since Python 3.11 a call from Python to Python stays inside the loop, so
//! one native frame stands for a *group* of Python frames. The interpreter marks the last frame of
//! each group, the outermost, so each group can replace its native frame:
//!
//! ```text
//!   native           Python              merged
//!   cuMemAlloc                           cuMemAlloc
//!   torch_empty                          torch_empty
//!   EvalFrame        layer               layer
//!                    forward | boundary  forward
//!   call_method                          call_method
//!   EvalFrame        main    | boundary  main
//!   Py_Main                              Py_Main
//! ```
//!
//! Evaluation frames are recognized by code address where the library has learned the code
//! ([`EvalLoopCode`]), otherwise by name. Where the code is known, names do not count: one part of
//! the loop may call another.
//!
//! The two stacks come from different sources and need not agree: either may be truncated by its
//! limit. Even then no frame is lost or duplicated. An evaluation frame without a group stays.
//! Python frames without an evaluation frame come last: a native stack is truncated at its outer
//! end, where those frames belong.

use std::ops::Range;

#[derive(Clone)]
pub struct NativeFrame<F> {
    pub frame: F,
    /// Whether it is a frame of the interpreter's evaluation loop; see [`is_evaluation`] and
    /// [`EvalLoopCode`].
    pub evaluation: bool,
}

pub struct PythonFrame<F> {
    /// The frame, or `None` if only its existence is known. An evaluation frame stays if its group
    /// has only such frames.
    pub frame: Option<F>,
    /// Whether it is the outermost Python frame that this evaluation frame runs.
    pub boundary: bool,
}

/// Merges the two stacks. Both and the result are innermost first.
pub fn merge<F>(
    native: impl IntoIterator<Item = NativeFrame<F>>,
    python: impl IntoIterator<Item = PythonFrame<F>>,
) -> Vec<F> {
    let native = native.into_iter();
    let mut python = python.into_iter().peekable();
    let mut merged = Vec::with_capacity(native.size_hint().0 + python.size_hint().0);
    for NativeFrame { frame, evaluation } in native {
        if !evaluation || python.peek().is_none() {
            merged.push(frame);
            continue;
        }
        let before = merged.len();
        for python in python.by_ref() {
            merged.extend(python.frame);
            if python.boundary {
                break;
            }
        }
        if merged.len() == before {
            merged.push(frame);
        }
    }
    merged.extend(python.filter_map(|python| python.frame));
    merged
}

/// Address ranges of the evaluation loop; empty if none is known.
#[derive(Default)]
pub struct EvalLoopCode(pub Vec<Range<u64>>);

impl EvalLoopCode {
    /// Marks the evaluation frame among the frames at one return address, which are innermost
    /// (inlined) first. The last one is the function's frame, so only it can be the evaluation.
    pub fn judge<'a, F: Clone>(
        &self,
        address: u64,
        named: &'a [NativeFrame<F>],
    ) -> impl Iterator<Item = NativeFrame<F>> + use<'a, F> {
        let by_name = self.0.is_empty();
        let call = address.wrapping_sub(1);
        let is_part = self.0.iter().any(|part| part.contains(&call));
        (1..).zip(named).map(move |(count, it)| NativeFrame {
            frame: it.frame.clone(),
            evaluation: if by_name { it.evaluation } else { is_part && count == named.len() },
        })
    }

    /// Formats the ranges for the history file of the process.
    pub fn to_text(&self) -> String {
        let parts = self.0.iter().map(|part| format!("{:x}-{:x}", part.start, part.end));
        parts.collect::<Vec<_>>().join(" ")
    }

    /// Parses the output of `to_text`. Skips text that it does not understand.
    pub fn from_text(text: &str) -> EvalLoopCode {
        let part = |part: &str| {
            let (start, end) = part.split_once('-')?;
            let number = |digits| u64::from_str_radix(digits, 16).ok();
            Some(number(start)?..number(end)?)
        };
        EvalLoopCode(text.split(' ').filter_map(part).collect())
    }
}

/// Returns whether a native symbol is the interpreter's evaluation loop. Compilers append `.cold`
/// and the like to parts of it.
pub fn is_evaluation(symbol: &str) -> bool {
    symbol.strip_prefix('_').unwrap_or(symbol).starts_with("PyEval_EvalFrame")
}
