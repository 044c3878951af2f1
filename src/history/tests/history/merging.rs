//! Merging native and Python frames into one stack.

use cachealloc_history::merge::{EvalLoopCode, NativeFrame, PythonFrame, is_evaluation, merge};
use proptest::prelude::*;

/// Native frames are words, evaluation frames in capitals; Python frames are words, and the last of
/// a group is followed by `|`.
fn check(native: &str, python: &str, expected: &str) {
    let native = native
        .split_whitespace()
        .map(|frame| NativeFrame { frame, evaluation: frame.chars().all(char::is_uppercase) });
    let python = python.split_whitespace().map(|frame| PythonFrame {
        frame: Some(frame.trim_end_matches('|')).filter(|frame| !frame.is_empty()),
        boundary: frame.ends_with('|'),
    });
    assert_eq!(merge(native, python).join(" "), expected);
}

#[test]
fn groups_take_the_place_of_their_native_frame() {
    check(
        "malloc empty EVAL call EVAL main",
        "layer forward| train main_py|",
        "malloc empty layer forward call train main_py main",
    );
}

#[test]
fn without_python_the_native_frames_stay() {
    check("malloc EVAL main", "", "malloc EVAL main");
    check("malloc main", "", "malloc main");
}

#[test]
fn without_native_frames_the_python_frames_stay() {
    check("", "inner| outer|", "inner outer");
    check("malloc main", "inner| outer|", "malloc main inner outer");
}

#[test]
fn a_native_stack_that_was_cut_ends_in_python() {
    check("malloc EVAL call", "a b| c d|", "malloc a b call c d");
}

#[test]
fn a_python_stack_that_was_cut_leaves_evaluation_frames() {
    check("malloc EVAL call EVAL main", "a b", "malloc a b call EVAL main");
    check("malloc EVAL call EVAL main", "a b|", "malloc a b call EVAL main");
}

#[test]
fn an_evaluation_without_a_frame_stays() {
    check(
        "malloc EVAL clear EVALUATES call EVAL main",
        "del| | a b|",
        "malloc del clear EVALUATES call a b main",
    );
    check("malloc EVAL call EVAL main", "| a|", "malloc EVAL call a main");
    check("malloc EVAL main", "a| |", "malloc a main");
}

#[test]
fn symbols_of_the_evaluation_loop() {
    for symbol in
        ["_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold", "PyEval_EvalFrameEx"]
    {
        assert!(is_evaluation(symbol), "{symbol}");
    }
    for symbol in ["_PyEval_Vector", "PyEval_EvalCode", "_PyFunction_Vectorcall", "", "??"] {
        assert!(!is_evaluation(symbol), "{symbol}");
    }
}

#[test]
fn code_that_is_known_counts_more_than_names() {
    let frame = |frame, evaluation| NativeFrame { frame, evaluation };
    let named = [frame("inlined", true), frame("function", true)];
    let judged = |code: &EvalLoopCode, address| -> Vec<bool> {
        code.judge(address, &named).map(|it| it.evaluation).collect()
    };
    assert_eq!(judged(&EvalLoopCode::default(), 0x1008), [true, true]);
    let code = EvalLoopCode(vec![0x10..0x20, 0x1000..0x1008]);
    // A return address may be the first one past the end of the code, but never its first one.
    for (address, is_part) in [(0x1000, false), (0x1001, true), (0x1008, true), (0x1009, false)] {
        assert_eq!(judged(&code, address), [false, is_part], "{address:x}");
    }
}

#[test]
fn known_code_survives_as_text() {
    let code = EvalLoopCode(vec![0x10..0x20, 0x7f00_0000_0000..0x7f00_0000_1000]);
    assert_eq!(EvalLoopCode::from_text(&code.to_text()).0, code.0);
    for text in ["", "-", "x-y", "10", "10-"] {
        assert!(EvalLoopCode::from_text(text).0.is_empty(), "{text}");
    }
}

proptest! {
    /// Frames are numbers: native ones from 0, Python's from 1000.
    #[test]
    fn entries_are_neither_lost_nor_repeated(
        native in prop::collection::vec(any::<bool>(), 0..30),
        python in prop::collection::vec(any::<bool>(), 0..30),
    ) {
        let merged = merge(
            (0..).zip(&native).map(|(frame, &evaluation)| NativeFrame { frame, evaluation }),
            (1000..).zip(&python).map(|(frame, &boundary)| PythonFrame { frame: Some(frame), boundary }),
        );
        let (from_native, from_python): (Vec<i32>, Vec<i32>) =
            merged.iter().partition(|&&frame| frame < 1000);

        // All of Python's frames are there, in their order.
        let all: Vec<i32> = (1000..).take(python.len()).collect();
        prop_assert_eq!(from_python, all);

        // Native frames keep their order; only evaluation frames were replaced, one for each group.
        prop_assert!(from_native.is_sorted_by(|left, right| left < right));
        let gone: Vec<usize> =
            (0..native.len()).filter(|&frame| !from_native.contains(&(frame as i32))).collect();
        prop_assert!(gone.iter().all(|&frame| native[frame]));
        let boundaries = python.iter().filter(|&&boundary| boundary).count();
        let open = python.last().is_some_and(|&boundary| !boundary);
        let groups = boundaries + usize::from(open);
        let evaluations = native.iter().filter(|&&evaluation| evaluation).count();
        prop_assert_eq!(gone.len(), groups.min(evaluations));
        // The result begins with the innermost frames: missing frames are missing at the outer end.
        let first: Vec<usize> =
            (0..native.len()).filter(|&frame| native[frame]).take(gone.len()).collect();
        prop_assert_eq!(&gone, &first);

        // Where both agree, each group is exactly where its frame was.
        if groups == evaluations {
            let mut groups = python.split_inclusive(|&boundary| boundary);
            let mut number = 1000;
            let mut expected = Vec::new();
            for (frame, &evaluation) in (0..).zip(&native) {
                if !evaluation {
                    expected.push(frame);
                    continue;
                }
                let group = groups.next().unwrap_or_default().len() as i32;
                expected.extend(number..number + group);
                number += group;
            }
            prop_assert_eq!(merged, expected);
        }
    }
}
