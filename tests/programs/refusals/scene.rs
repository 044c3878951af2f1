//! Objects that a call may act on, and how they are made.

use std::cell::Cell;

use cachealloc_tests::driver::{Driver, Outcome, RELAXED, Stream, check};
use cachealloc_tests::functions::IpcHandle;

const KIB: usize = 1 << 10;
/// Size of the memory that calls may write to, which is not read.
pub const PLAIN_BYTES: usize = 64 * KIB;
const HELD_WORDS: usize = 64 * KIB;

pub struct Scene<'d> {
    pub d: &'d Driver,
    pub context: u64,
    pub stream: Stream,
    pub other_stream: Stream,
    /// A stream that only captures.
    pub captured: Stream,
    /// Blocks of several sizes, filled with their own number.
    pub held: Vec<(u64, u64)>,
    /// Device and pinned memory to which calls write.
    pub plain: u64,
    pub pinned: u64,
    pub kernel: u64,
    is_capturing: Cell<bool>,
}

impl<'d> Scene<'d> {
    pub fn new(d: &'d Driver) -> Outcome<Scene<'d>> {
        // Takes a second reference, so that a call never releases the last one.
        d.use_device(0)?;
        let mut held = Vec::new();
        for (number, bytes) in [KIB, 700 * KIB, 3072 * KIB, 12 << 20].into_iter().enumerate() {
            let block = d.alloc(bytes)?;
            let number = number as u64 + 10;
            d.write_words(block, &vec![number; bytes.min(HELD_WORDS * 8) / 8])?;
            held.push((block, number));
        }
        Ok(Scene {
            d,
            context: d.context(),
            stream: d.stream()?,
            other_stream: d.stream()?,
            captured: d.stream()?,
            held,
            plain: d.alloc(PLAIN_BYTES)?,
            pinned: d.pinned(PLAIN_BYTES)?,
            kernel: d.kernel("late_fill")?,
            is_capturing: Cell::new(false),
        })
    }

    /// Returns the argument words of a call that succeeds without the library, each time with new
    /// objects. Returns `None` for an unknown function.
    pub fn arguments(&self, symbol: &str) -> Option<Vec<u64>> {
        let name = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let of_family = self.of_graphs(name).or_else(|| self.of_others(name));
        of_family.or_else(|| self.of_seldom(name))
    }

    /// Returns arguments for a function of which only the types of its arguments are known (column
    /// `args` of the list): pointers for what the call writes or reads, and zeros otherwise.
    pub fn unknown(&self, types: &str) -> Vec<u64> {
        let mut words = Vec::new();
        let mut letters = types.chars().filter(|letter| !letter.is_ascii_digit());
        while let Some(letter) = letters.next() {
            if letter == '[' {
                letters.by_ref().find(|letter| *letter == ']');
            }
            words.push(if letter == '[' || letter.is_ascii_uppercase() { out() } else { 0 });
        }
        words
    }

    /// Calls a function whose arguments are words; a handle of another process is passed by value.
    pub fn call(&self, symbol: &str, words: &[u64]) -> i32 {
        type W = u64;
        type Any = unsafe extern "C" fn(W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W) -> i32;
        type Open = unsafe extern "C" fn(u64, IpcHandle, u64) -> i32;
        let found = self.d.resolver.symbol(symbol).expect("the driver has it");
        if symbol.starts_with("cuIpcOpen") {
            // SAFETY: the driver's functions have this signature; the words point to memory of this
            // program.
            return unsafe {
                let open = std::mem::transmute::<*mut libc::c_void, Open>(found);
                open(words[0], *(words[1] as *const IpcHandle), words[2])
            };
        }
        let mut w = [0; 16];
        w[..words.len()].copy_from_slice(words);
        // SAFETY: in the C calling convention of both processors a function finds its arguments
        // where a function with more of them has them, and a word holds any integer or pointer. The
        // words are values, or pointers that stay valid.
        unsafe {
            let any = std::mem::transmute::<*mut libc::c_void, Any>(found);
            any(
                w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
                w[13], w[14], w[15],
            )
        }
    }

    /// Makes a call that must succeed.
    pub fn must(&self, symbol: &str, words: &[u64]) {
        let code = self.call(symbol, words);
        assert_eq!(code, 0, "{symbol} answered {code}");
    }

    /// Begins the capture that the arguments of some calls need, when everything else is done.
    pub fn begin_capture(&self, symbol: &str) {
        let wanted = ["cuStreamEndCapture", "cuStreamUpdateCapture"];
        if wanted.iter().any(|start| symbol.starts_with(start)) {
            self.d.begin_capture(self.captured, RELAXED).expect("a capture");
        }
        self.is_capturing.set(symbol.contains("apture"));
    }

    /// Ends the capture that the call has begun, or has not ended, and leaves the context that it
    /// has made.
    pub fn settle(&self, symbol: &str) {
        if symbol.contains("CtxCreate") {
            self.d.set_context(self.context).expect("the first context");
        }
        if self.is_capturing.take() && self.d.capture_status(self.captured) != Ok(0) {
            println!("capture: {}", said(self.d.end_capture(self.captured).map(drop)));
        }
    }

    pub fn reset(&self) -> Outcome {
        // SAFETY: the function takes the number of a device.
        check(unsafe { (self.d.functions.cuDevicePrimaryCtxReset)(0) })
    }
}

/// Returns a pointer to these words, which stays valid.
pub fn place(words: &[u64]) -> u64 {
    let mut words = words.to_vec();
    words.resize(words.len().max(64), 0);
    words.leak().as_mut_ptr() as u64
}

/// Returns a pointer to memory for results.
pub fn out() -> u64 {
    place(&[])
}

/// Returns the first word at a pointer that `place` returned.
pub fn at(place: u64) -> u64 {
    // SAFETY: `place` made it, and nothing else writes there now.
    unsafe { (place as *const u64).read() }
}

pub fn text(text: &'static std::ffi::CStr) -> u64 {
    text.as_ptr() as u64
}

pub fn said(outcome: Outcome) -> String {
    outcome.err().unwrap_or(0).to_string()
}

/// The arguments of `late_fill`.
pub struct KernelArguments([u64; 4]);

impl KernelArguments {
    pub fn fill(at: u64, bytes: usize, value: u64, ns: u64) -> KernelArguments {
        KernelArguments([at, bytes as u64, value, ns])
    }

    pub fn launch(&self, d: &Driver, stream: Stream) -> Outcome {
        d.launch("late_fill", stream, &self.0)
    }

    /// Returns the list of pointers to the arguments.
    pub fn list(&self) -> u64 {
        let values = place(&self.0);
        place(&[values, values + 8, values + 16, values + 24])
    }
}
