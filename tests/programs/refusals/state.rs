//! State as seen by the program and by the library's user: memory, contents, sizes, how a request
//! and a free are served, statistics.

use cachealloc_tests::driver::Outcome;

use super::{BYTES, LATE};
use crate::scene::{KernelArguments, Scene};

#[derive(PartialEq, Debug)]
pub struct State {
    native: Native,
    ours: Ours,
}

/// State that a program also sees without the library.
#[derive(PartialEq, Debug)]
struct Native {
    free_bytes: Outcome<usize>,
    contents: Vec<Outcome<bool>>,
    ranges: Vec<Outcome<(u64, usize)>>,
    /// Codes of requests of each kind, and of their frees.
    codes: Vec<i32>,
}

#[derive(PartialEq, Debug)]
struct Ours {
    free_waits: bool,
    /// Number of requests that reached the driver.
    asked: u64,
    statistics: Vec<i64>,
}

impl State {
    pub fn of(scene: &Scene) -> State {
        let d = scene.d;
        let codes = vec![
            code(d.synchronize()),
            code(d.alloc(BYTES).and_then(|block| d.free(block))),
            code(d.alloc(700 << 10).and_then(|block| d.free_async(block, scene.stream))),
            code(
                d.alloc_async(BYTES, scene.stream)
                    .and_then(|block| d.free_async(block, scene.stream)),
            ),
            code(d.alloc_async(BYTES, scene.stream).and_then(|block| d.free(block))),
            code(d.pinned(4096).and_then(|block| d.free_pinned(block))),
            code(d.synchronize()),
        ];
        let ours = Ours::of(scene);
        let contents = scene.held.iter().map(|(block, number)| {
            Ok(d.read_words(*block, 128)?.iter().all(|word| word == number))
        });
        let contents = contents.collect();
        let ranges = scene.held.iter().map(|(block, _)| d.address_range(*block)).map(|range| {
            // The library decides where a block lies.
            range
                .map(|(base, bytes)| (u64::from(scene.held.iter().any(|(b, _)| *b == base)), bytes))
        });
        let ranges = ranges.collect();
        let free_bytes = d.memory_info().map(|(free, _)| free);
        State { native: Native { free_bytes, contents, ranges, codes }, ours }
    }

    /// Prints the state that also exists without the library, and how the memory has changed since
    /// `before`.
    pub fn tell(&self, before: &State) {
        let Native { free_bytes, contents, ranges, codes } = &self.native;
        let less = match (before.native.free_bytes, free_bytes) {
            (Ok(before), Ok(after)) => (before as i64 - *after as i64).to_string(),
            (_, now) => format!("{now:?}"),
        };
        println!("memory less by {less}, codes {codes:?}, contents {contents:?}, sizes {ranges:?}");
    }
}

impl Ours {
    fn of(scene: &Scene) -> Ours {
        let d = scene.d;
        let ns = || d.virtual_ns().unwrap_or(0);
        let asked = || ["cuMemAllocAsync", "cuMemAlloc_v2"].map(|name| d.calls(name).unwrap_or(0));
        let before: u64 = asked().into_iter().sum();
        let free_waits = || -> Outcome<bool> {
            let block = d.alloc(BYTES)?;
            KernelArguments::fill(scene.plain, 64, 3, LATE).launch(d, scene.stream)?;
            let begun = ns();
            d.free(block)?;
            let waits = ns() - begun > LATE / 2;
            for _ in 0..4 {
                d.free_async(d.alloc_async(BYTES, scene.stream)?, scene.stream)?;
            }
            d.synchronize()?;
            Ok(waits)
        };
        let free_waits = free_waits().unwrap_or(true);
        let asked = asked().into_iter().sum::<u64>() - before;
        let keys = [c"allocated_bytes.all.current", c"reserved_bytes.all.current", c"num_ooms"];
        Ours { free_waits, asked, statistics: keys.into_iter().map(statistic).collect() }
    }
}

fn statistic(key: &std::ffi::CStr) -> i64 {
    type Stat = unsafe extern "C" fn(i32, *const libc::c_char, *mut i64) -> i32;
    let mut value = -1;
    // SAFETY: the pointer is null, or the function of the library's header, which takes a text and
    // a pointer.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"cachealloc_stat".as_ptr());
        let function = std::mem::transmute::<*mut libc::c_void, Option<Stat>>(found);
        function.map(|stat| stat(0, key.as_ptr(), &mut value));
    }
    value
}

fn code(outcome: Outcome) -> i32 {
    outcome.err().unwrap_or(0)
}
