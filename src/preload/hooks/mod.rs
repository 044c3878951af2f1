//! One function for each kind of hooked call. It passes the C arguments on and returns the driver's
//! code, and contains no policy and no state.
//!
//! A hook gets the row of the function list (`function`), the arguments that the row names, in the
//! types that the hook declares, and `real`, which calls the driver with all of the program's
//! arguments.

pub(crate) mod capture;
pub(crate) mod common;
pub(crate) mod communication;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod driver_memory;
pub(crate) mod host_memory;
pub(crate) mod ipc;
pub(crate) mod kernel_node;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod observers;
pub(crate) mod out_of_memory;
pub(crate) mod pitched;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod query;
pub(crate) mod resolve;
pub(crate) mod stream_ordered;
pub(crate) mod taking;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::{CuResult, STREAM_LEGACY, STREAM_PER_THREAD, StreamHandle};
use crate::functions::{Function, StreamAt};
use crate::ordering::legacy_stream;
use crate::process::bypass;
use crate::state::thread;
use crate::state::thread::Thread;

/// The real function with the program's arguments. It is passed by value and copied only by a path
/// that needs it in memory, so that elsewhere the arguments stay in registers.
pub(crate) trait Real: Fn() -> CuResult + Copy {}

impl<F: Fn() -> CuResult + Copy> Real for F {}

/// Proof that this thread is inside exactly one hook.
struct Token<'a>(&'a Thread);

impl Token<'_> {
    #[inline(always)]
    fn take(thread: &Thread) -> Option<Token<'_>> {
        if thread.inside.get() {
            return None;
        }
        Some(Token::of(thread))
    }

    /// Enters a hook. The thread must not be inside another one.
    #[inline(always)]
    fn of(thread: &Thread) -> Token<'_> {
        debug_assert!(!thread.inside.get(), "nested hooks");
        thread.inside.set(true);
        Token(thread)
    }
}

impl Drop for Token<'_> {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(self.0.inside.get(), "nested hooks");
        self.0.inside.set(false);
    }
}

/// Runs the body of a hook. A panic ends caching and never reaches the program; the result is then
/// `otherwise`, as for a call from inside another hook.
#[inline]
pub(crate) fn guarded(
    function: &'static Function,
    body: impl FnOnce() -> CuResult,
    otherwise: impl FnOnce() -> CuResult,
) -> CuResult {
    guarded_with(function, |_| body(), otherwise)
}

/// Returns whether the driver accepted a call. A refused call changes nothing of the library's
/// state, as it changes nothing in the driver.
#[inline]
pub(crate) fn is_accepted(code: CuResult) -> bool {
    code.is_ok() || !rule_holds(Rule::RefusedChangesNothing)
}

/// Runs a side effect of a hook, which does not change its result.
#[inline]
pub(crate) fn beside(function: &'static Function, body: impl FnOnce()) {
    let body = || {
        body();
        Ok(())
    };
    let _ = guarded(function, body, || Ok(()));
}

/// Runs a body like `guarded`, and passes it the calling thread's record.
#[inline]
pub(crate) fn guarded_with(
    function: &'static Function,
    body: impl FnOnce(&Thread) -> CuResult,
    otherwise: impl FnOnce() -> CuResult,
) -> CuResult {
    thread::with(|thread| match Token::take(thread) {
        Some(token) => guarded_by(token, function, || body(thread), otherwise),
        None => otherwise(),
    })
}

/// Runs a body like `guarded`, for a caller that has found that this thread is in no other hook.
#[inline(always)]
fn guarded_by<T>(
    _token: Token,
    function: &'static Function,
    body: impl FnOnce() -> T,
    otherwise: impl FnOnce() -> T,
) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(done) => done,
        Err(panic) => {
            report(function, panic);
            otherwise()
        }
    }
}

#[cold]
fn report(function: &'static Function, panic: Box<dyn core::any::Any + Send>) {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    bypass::begin(format_args!("{} panicked ({text})", function.symbol().to_string_lossy()));
    core::mem::forget(panic); // dropping it could panic again
}

/// Returns the stream that a call names, if it names one.
///
/// # Safety
///
/// `words` must be the program's arguments of this function.
#[inline(always)]
pub(crate) unsafe fn stream_among(function: &Function, words: &[usize]) -> Option<StreamHandle> {
    let stream = match function.stream {
        StreamAt::Nowhere => return None,
        StreamAt::Argument(index) => words[index as usize],
        StreamAt::Inside { argument, offset } => match words[argument as usize] {
            0 => return None,
            // SAFETY: the driver reads its stream there.
            place => unsafe {
                (place as *const u8).add(offset as usize).cast::<usize>().read_unaligned()
            },
        },
    };
    Some(stream_of(function, stream))
}

/// Notes that a call has submitted work to the stream it names, if it names one.
///
/// # Safety
///
/// `words` must be the program's arguments of this function.
#[inline(always)]
pub(crate) unsafe fn submitted(function: &Function, words: &[usize]) {
    // SAFETY: the caller's promise.
    if let Some(stream) = unsafe { stream_among(function, words) } {
        note_stream(stream);
    }
}

/// Notes that a call has submitted work to this stream.
#[inline(always)]
fn note_stream(stream: StreamHandle) {
    if stream <= STREAM_LEGACY {
        legacy_stream::note_legacy_work();
    }
}

/// Returns the stream that a function means by this argument. In the per-thread variants, NULL is
/// the calling thread's default stream.
#[inline]
pub(crate) fn stream_of(function: &Function, word: usize) -> StreamHandle {
    if word == 0 && function.per_thread { STREAM_PER_THREAD } else { word }
}
