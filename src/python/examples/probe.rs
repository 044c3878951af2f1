//! A library for Python's ctypes. The tests use it to compare captured frames with Python's own.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cachealloc_python::{Captured, capture, describe, is_boundary, start, status};

const FRAMES_MAX: usize = 4096;
/// Separators between the fields of a frame, and between frames; neither occurs in a name.
const FIELD_END: char = '\u{1f}';
const FRAME_END: char = '\u{1e}';

fn global(name: &CStr) -> *const c_void {
    // SAFETY: a valid name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Copies a text for Python; returns its length.
///
/// # Safety
///
/// `out` must have room for `room` bytes.
unsafe fn hand_over(text: &str, out: *mut u8, room: usize) -> usize {
    assert!(text.len() <= room, "no room for {} bytes", text.len());
    // SAFETY: checked above.
    unsafe { out.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    text.len()
}

#[unsafe(no_mangle)]
pub extern "C" fn probe_start() {
    start(global);
}

static CLAIMED_VERSION: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn claimed_version() -> *const c_char {
    CLAIMED_VERSION.load(Ordering::Relaxed)
}

/// Starts as if the interpreter were of another version.
///
/// # Safety
///
/// The text must live forever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_start_as(version: *mut c_char) {
    CLAIMED_VERSION.store(version, Ordering::Relaxed);
    start(|name| match name == c"Py_GetVersion" {
        true => claimed_version as *const c_void,
        false => global(name),
    });
}

/// # Safety
///
/// The requirements of `hand_over` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_status(out: *mut u8, room: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { hand_over(&format!("{:?}", status()), out, room) }
}

/// Writes a capture as text: whether it was truncated, how many C evaluations the native stack
/// holds, then the frames, innermost first.
///
/// # Safety
///
/// The requirements of `hand_over` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_capture(frames_max: usize, out: *mut u8, room: usize) -> usize {
    let mut words = [0; FRAMES_MAX];
    let Captured { count, truncated } = capture(&mut words[..frames_max]);
    let frames = words[..count].iter().map(|word| (describe(*word), is_boundary(*word)));
    let frames: Vec<_> = frames.collect();
    let gone = frames.iter().filter(|(frame, _)| frame.is_none()).count();
    let evaluations = evaluations_count() - gone;
    let mut text = format!("{}{FIELD_END}{evaluations}", u8::from(truncated));
    for (frame, boundary) in frames {
        let Some(frame) = frame else {
            assert!(boundary, "a frame that was just captured");
            continue;
        };
        let boundary = u8::from(boundary);
        text += &format!(
            "{FRAME_END}{}{FIELD_END}{}{FIELD_END}{}{FIELD_END}{boundary}",
            frame.name, frame.filename, frame.line
        );
    }
    // SAFETY: guaranteed by the caller.
    unsafe { hand_over(&text, out, room) }
}

/// Number of native frames that evaluate Python code: those that hold a mark or, in versions
/// without marks, have the name.
fn evaluations_count() -> usize {
    let mut marks = Vec::new();
    cachealloc_python::marks(FRAMES_MAX, |mark| marks.push(mark));
    let mut frames = Vec::new();
    // SAFETY: libgcc's unwinder needs no outer lock.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            frames.push((frame.ip() as u64, frame.sp() as u64));
            true
        });
    }
    let named = frames.iter().filter(|frame| is_named_evaluation(frame.0)).count();
    if marks.is_empty() {
        return named;
    }
    let memories = frames.windows(2).map(|pair| pair[0].1..pair[1].1);
    let marked = memories.filter(|frame| marks.iter().any(|mark| frame.contains(mark))).count();
    assert!(named <= marked, "of {named} evaluations only {marked} have a mark");
    marked
}

fn is_named_evaluation(address: u64) -> bool {
    // SAFETY: all fields are pointers, which may be null.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be passed.
    let known = unsafe { libc::dladdr(address.wrapping_sub(1) as *const c_void, &raw mut found) };
    known != 0 && found.dli_saddr.cast_const() == global(c"_PyEval_EvalFrameDefault")
}

/// Captures words to be described later; returns their number.
///
/// # Safety
///
/// `words` must have room for `words_max` words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_words(words: *mut u64, words_max: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    capture(unsafe { core::slice::from_raw_parts_mut(words, words_max) }).count
}

/// Writes a word as text: name, file, line. Empty if the word cannot be described.
///
/// # Safety
///
/// The requirements of `hand_over` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_describe(word: u64, out: *mut u8, room: usize) -> usize {
    let text = describe(word).map_or_else(String::new, |frame| {
        format!("{}{FIELD_END}{}{FIELD_END}{}", frame.name, frame.filename, frame.line)
    });
    // SAFETY: guaranteed by the caller.
    unsafe { hand_over(&text, out, room) }
}

#[unsafe(no_mangle)]
pub extern "C" fn probe_call(callback: extern "C" fn()) {
    callback();
}

/// Calls back from a thread that Python does not know.
#[unsafe(no_mangle)]
pub extern "C" fn probe_call_on_thread(callback: extern "C" fn()) {
    std::thread::spawn(move || callback()).join().expect("the callback returned");
}

fn frames_count() -> usize {
    capture(&mut [0; 64]).count
}

/// Number of frames that a thread without any Python state captures.
#[unsafe(no_mangle)]
pub extern "C" fn probe_frames_on_thread() -> usize {
    std::thread::spawn(frames_count).join().expect("a capture")
}

const WAITING: u32 = 1;
const ENDING: u32 = 2;
const SEEN: u32 = 3;
static END: AtomicU32 = AtomicU32::new(0);
static FRAMES_OF_WAITER: AtomicUsize = AtomicUsize::new(0);

/// Starts a thread that survives the interpreter without holding its lock, and captures on request.
#[unsafe(no_mangle)]
pub extern "C" fn probe_outlive_the_interpreter() {
    END.store(WAITING, Ordering::Release);
    loop {
        if END.load(Ordering::Acquire) == ENDING {
            FRAMES_OF_WAITER.store(frames_count(), Ordering::Relaxed);
            END.store(SEEN, Ordering::Release);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Number of frames that the waiting thread captures now.
#[unsafe(no_mangle)]
pub extern "C" fn probe_ask_the_waiter() -> usize {
    END.store(ENDING, Ordering::Release);
    while END.load(Ordering::Acquire) != SEEN {
        std::thread::sleep(Duration::from_millis(1));
    }
    FRAMES_OF_WAITER.load(Ordering::Relaxed)
}

/// Prints, when the process exits and the interpreter is gone, how many frames this thread and the
/// waiting one still capture.
#[unsafe(no_mangle)]
pub extern "C" fn probe_report_at_exit() {
    extern "C" fn report() {
        let (own, waiter) = (frames_count(), probe_ask_the_waiter());
        println!("after the end: {own} {waiter}");
    }
    // SAFETY: the function exists as long as this library, which Python never unloads.
    unsafe { libc::atexit(report) };
}

#[unsafe(no_mangle)]
pub extern "C" fn probe_is_waiting() -> c_int {
    c_int::from(END.load(Ordering::Acquire) == WAITING)
}

/// Nanoseconds per capture: the best of some rounds.
#[unsafe(no_mangle)]
pub extern "C" fn probe_nanoseconds() -> f64 {
    const CAPTURES: u32 = 2_000;
    let mut words = [0; FRAMES_MAX];
    let round = |_| {
        let begin = Instant::now();
        for _ in 0..CAPTURES {
            core::hint::black_box(capture(&mut words));
        }
        begin.elapsed().as_nanos() as f64 / f64::from(CAPTURES)
    };
    (0..20).map(round).fold(f64::INFINITY, f64::min)
}
