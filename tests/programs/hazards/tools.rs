//! Shared helpers of the programs: the table row of a program, sizes, delays and small checks.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Outcome, Stream, check};

/// A program's output line, or the code of a driver call that failed.
pub type Verdict = Outcome<String>;

pub struct Hazard {
    pub name: &'static str,
    pub kept: Kept,
    /// Whether the program also works without the library. If false, only the library promises that
    /// it does.
    pub natively: bool,
    /// Variables for the simulation, and for test builds of the library, separated by spaces.
    pub machine: &'static str,
    pub run: fn(&Driver) -> Verdict,
}

/// The modes that keep the promise on which the program relies.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    /// Every mode: no reuse while in use, no unnecessary wait, no lost capture.
    Always,
    /// Every mode except `relaxed`: the order of streams, or completion that the host observes.
    Full,
    /// Only `strict`: a real wait in every free.
    StrictOnly,
}

/// One row of a module's table: `hazard!(Full, name)`, followed by any fields that differ from the
/// defaults.
macro_rules! hazard {
    ($kept:ident, $run:ident) => {
        hazard!($kept, $run, machine = "")
    };
    ($kept:ident, $run:ident, ours) => {
        $crate::tools::Hazard { natively: false, ..hazard!($kept, $run) }
    };
    ($kept:ident, $run:ident, machine = $machine:literal) => {
        $crate::tools::Hazard {
            name: stringify!($run),
            kept: $crate::tools::Kept::$kept,
            natively: true,
            machine: $machine,
            run: $run,
        }
    };
}

/// Calls a function of the driver that has no wrapper.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each argument is a value, or a pointer of the program that outlives the call and
        // is as large as this function's documentation requires.
        cachealloc_tests::driver::check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

/// Calls a function by its symbol, all of whose arguments are words.
pub fn call_words(d: &Driver, symbol: &str, words: &[u64]) -> Outcome {
    type W = u64;
    type Any = unsafe extern "C" fn(W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W) -> i32;
    let found = d.resolver.symbol(symbol).ok_or(500)?;
    let mut w = [0; 16];
    w[..words.len()].copy_from_slice(words);
    // SAFETY: in the C calling convention of both processors a function finds its arguments where a
    // function with more of them has them, and a word holds any integer or pointer. The words are
    // values, or pointers that stay valid.
    check(unsafe {
        let any = std::mem::transmute::<*mut c_void, Any>(found);
        any(
            w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13],
            w[14], w[15],
        )
    })
}

/// Makes such a call, and returns what it writes to its first argument.
pub fn made_by(d: &Driver, symbol: &str, rest: &[u64]) -> Outcome<u64> {
    let made = out();
    call_words(d, symbol, &[&[made], rest].concat())?;
    // SAFETY: `out` made it, and the call has returned.
    Ok(unsafe { (made as *const u64).read() })
}

/// Returns a pointer to these words, with room for more, which stays valid.
pub fn place(words: &[u64]) -> u64 {
    let mut words = words.to_vec();
    words.resize(64, 0);
    words.leak().as_mut_ptr() as u64
}

/// Returns a pointer to memory for results.
pub fn out() -> u64 {
    place(&[])
}

/// Virtual nanoseconds: longer than any call, and than a free that does not wait takes.
pub const LATE: u64 = 15_000_000;
pub const SMALL: usize = 64 << 10;
pub const BYTES: usize = 3 << 20;
pub const WORD: u64 = 8;

pub fn ok_if(good: bool, otherwise: &str) -> Verdict {
    Ok(if good { "ok".into() } else { format!("FAIL, {otherwise}") })
}

/// Returns 0 or the driver's code, for calls whose failure is the point.
pub fn code<T>(outcome: Outcome<T>) -> i32 {
    outcome.err().unwrap_or(0)
}

pub fn fill(d: &Driver, stream: Stream, at: u64, bytes: usize, value: u64, ns: u64) -> Outcome {
    d.launch("late_fill", stream, &[at, bytes as u64, value, ns])
}

/// Returns a new stream, which has this handle if the driver soon reuses it.
pub fn under_handle(d: &Driver, handle: Stream) -> Outcome<Stream> {
    let mut stream = d.stream()?;
    for _ in 0..16 {
        if stream == handle {
            break;
        }
        stream = d.stream()?;
    }
    Ok(stream)
}

pub fn copy(d: &Driver, stream: Stream, dst: u64, src: u64, bytes: usize, ns: u64) -> Outcome {
    d.launch("copy", stream, &[dst, src, bytes as u64, ns])
}

/// Waits for all work, and checks that every word has this value.
pub fn holds(d: &Driver, at: u64, bytes: usize, value: u64) -> Outcome<bool> {
    d.synchronize()?;
    Ok(d.read_words(at, bytes / 8)?.iter().all(|word| *word == value))
}

/// Runs `body` to its end in another thread, in the same context.
pub fn in_thread<T: Send>(d: &Driver, body: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    std::thread::scope(|scope| spawn(scope, d, body).join().expect("no program panics"))
}

/// Runs `body` in another thread, in the same context, without waiting for it.
pub fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    d: &'env Driver,
    body: impl FnOnce() -> Outcome<T> + Send + 'scope,
) -> std::thread::ScopedJoinHandle<'scope, Outcome<T>> {
    let context = d.context();
    scope.spawn(move || {
        d.set_context(context)?;
        body()
    })
}

/// Signals other threads that this one has ended, whether it succeeded or failed.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Makes the cache, if there is one, release what it can.
pub fn trim() {
    // SAFETY: the pointer is null, or the function of the library's header, which takes a device.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"cachealloc_trim".as_ptr());
        type Trim = extern "C" fn(i32) -> i64;
        let function = std::mem::transmute::<*mut libc::c_void, Option<Trim>>(found);
        function.map(|trim| trim(-1));
    }
}

pub fn sleep_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// Loads a module from PTX text, which may hold other variables and kernels than kernels.ptx.
pub fn load_module(d: &Driver, text: &str) -> Outcome<u64> {
    let text = std::ffi::CString::new(text).expect("text without zeros");
    let mut module = 0;
    call!(d, cuModuleLoadData(&mut module, text.as_ptr().cast()))?;
    Ok(module)
}

pub fn global(d: &Driver, module: u64, name: &std::ffi::CStr) -> Outcome<u64> {
    let (mut address, mut bytes) = (0, 0);
    call!(d, cuModuleGetGlobal(&mut address, std::ptr::null_mut(), module, name.as_ptr().cast()))?;
    // The caller may ask for either value alone.
    call!(d, cuModuleGetGlobal(std::ptr::null_mut(), &mut bytes, module, name.as_ptr().cast()))?;
    assert_ne!(bytes, 0);
    Ok(address)
}

/// Returns the sum of the results of all threads, each of which runs in this thread's context.
pub fn in_threads(
    d: &Driver,
    count: u64,
    work: impl Fn(u64) -> Outcome<u64> + Sync,
) -> Outcome<u64> {
    let context = d.context();
    in_bare_threads(count, |seed| {
        d.set_context(context)?;
        work(seed)
    })
}

pub fn in_bare_threads(count: u64, work: impl Fn(u64) -> Outcome<u64> + Sync) -> Outcome<u64> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=count).map(|seed| scope.spawn(move || work(seed))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("no program panics"));
        ended.sum()
    })
}
