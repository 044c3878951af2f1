//! The driver refuses one function: `refusals SYMBOL TYPES`, with the values of these columns in
//! the list of functions.
//!
//! First the function only returns a code; then it returns that code although it has taken full
//! effect (`sim_fail`). Each time there is memory in the cache, and two threads free after a
//! kernel. Each line prints the result of the call, and the state that the program sees afterwards,
//! which is the same without the library. A refusal without effect must not have changed anything
//! in the library either: otherwise a line says CHANGED.
//!
//! `refusals --list` prints those of the following symbols for which it knows arguments. The others
//! are only refused at once.

mod calls;
mod graphs;
mod scene;
mod seldom;
mod state;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_tests::driver::{Driver, Lookup, Outcome, Stream};

use scene::{KernelArguments, Scene, said};
use state::State;

/// Virtual nanoseconds that a kernel takes: longer than any call.
const LATE: u64 = 15_000_000;
const BYTES: usize = 3 << 20;

fn main() {
    let mut words = std::env::args().skip(1);
    let (symbol, types) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let driver = Driver::open(Lookup::Symbols).expect("a driver");
    let scene = Scene::new(&driver).expect("memory and streams");
    if symbol == "--list" {
        let known = |symbol: &String| scene.arguments(symbol).is_some();
        let symbols = std::env::args().skip(2);
        return symbols.filter(known).for_each(|symbol| println!("{symbol}"));
    }
    let (begin, end, is_over) = (Barrier::new(2), Barrier::new(2), AtomicBool::new(false));
    let other_thread = || {
        begin.wait();
        end.wait();
    };
    let free_behind_work = || {
        other_thread();
        Pending::new(&driver, scene.stream)
    };
    let ask = |pending: Outcome<Pending>| {
        println!("this thread: {}", said(pending.and_then(|pending| pending.ask(&driver))));
        other_thread();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            driver.set_context(scene.context).expect("a context");
            loop {
                begin.wait();
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let pending = Pending::new(&driver, scene.other_stream);
                end.wait();
                begin.wait();
                println!(
                    "another thread: {}",
                    said(pending.and_then(|pending| pending.ask(&driver)))
                );
                end.wait();
            }
        });
        for (name, fault) in TRIES {
            println!("{name}:");
            let known = scene.arguments(&symbol);
            if known.is_none() && name != "refused" {
                break;
            }
            let arguments = known.unwrap_or_else(|| scene.unknown(&types));
            // The first use of these calls takes memory.
            ask(free_behind_work());
            State::of(&scene);
            let before = State::of(&scene);
            let pending = free_behind_work();
            scene.begin_capture(&symbol);
            if !fault.is_empty() {
                assert!(driver.fail(&format!("{symbol}@*={fault}")), "no simulation");
            }
            let code = scene.call(&symbol, &arguments);
            driver.recover();
            scene.settle(&symbol);
            println!("code {code}");
            ask(pending);
            let after = State::of(&scene);
            after.tell(&before);
            if name == "refused" && after != before {
                println!("CHANGED: {before:?} to {after:?}");
            }
        }
        is_over.store(true, Ordering::SeqCst);
        begin.wait();
    });
    println!("reset: {}", said(scene.reset()));
}

/// What the driver does with the call, and the code: one after which nothing is repeated, and which
/// does not concern the context.
const TRIES: [(&str, &str); 3] = [("refused", "1"), ("done and refused", "1!"), ("accepted", "")];

/// Work, its event, and a free after it, which on the plain driver has waited for both.
struct Pending {
    event: u64,
}

impl Pending {
    fn new(d: &Driver, stream: Stream) -> Outcome<Pending> {
        let (event, block, kept) = (d.event()?, d.alloc(BYTES)?, d.alloc(BYTES)?);
        KernelArguments::fill(kept, BYTES, 1, LATE).launch(d, stream)?;
        d.record(event, stream)?;
        d.free(block)?;
        d.free(kept)?;
        Ok(Pending { event })
    }

    fn ask(self, d: &Driver) -> Outcome {
        d.query_event(self.event)
    }
}
