//! Random programs that are legal if `cuMemFree` waits for its context: `random SEED OPS THREADS`.
//!
//! Each thread keeps a small model of the work that is known to be complete (`order`), and accesses
//! a block only when that is in order: by its stream, an event, a wait, or a free. Every fill has a
//! distinct value, and checks look for it. With a fourth argument, `own`, frees order nothing:
//! programs for mode `relaxed`.
//!
//! The program prints the number of wrong words; the simulation reports whether two kernels met.

mod order;
mod worker;

mod cells;
mod graphs;
mod parcels;
mod touch;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use cachealloc_tests::driver::{Driver, Lookup, Outcome};
use parcels::Parcel;
use worker::Worker;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seed, ops, threads) = (number(1), number(300), number(2));
    let frees_wait = arguments.next().as_deref() != Some("own");
    let driver = Driver::open(Lookup::ProcAddress).unwrap_or_else(|error| {
        eprintln!("random: {error}");
        std::process::exit(2);
    });
    let program = Program { driver, seed, ops, frees_wait, values: AtomicU64::new(seed << 32) };
    match run(&program, threads as usize) {
        Ok(0) => println!("random {seed}: every word is right"),
        Ok(wrong) => {
            println!("random {seed}: FAIL, {wrong} words are wrong");
            std::process::exit(1);
        }
        Err(code) => {
            println!("random {seed}: FAIL, driver error {code}");
            std::process::exit(1);
        }
    }
}

pub struct Program {
    pub driver: Driver,
    pub seed: u64,
    pub ops: u64,
    /// Whether the program relies on the wait in `cuMemFree`.
    pub frees_wait: bool,
    values: AtomicU64,
}

impl Program {
    /// Returns a value that no other fill of this program has.
    pub fn fresh_value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }
}

/// Runs the threads, each of which sends blocks to the next one.
fn run(program: &Program, threads: usize) -> Outcome<u64> {
    let context = program.driver.context();
    type Channel = (Sender<Parcel>, Receiver<Parcel>);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..threads).map(|_| -> Channel { channel() }).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(Mutex::new).collect();
    std::thread::scope(|scope| {
        let work = |index: usize| {
            let next = senders[(index + 1) % threads].clone();
            let inbox = &receivers[index];
            scope.spawn(move || {
                program.driver.set_context(context)?;
                Worker::new(program, index as u64, next, inbox)?.run()
            })
        };
        let workers: Vec<_> = (0..threads).map(work).collect();
        let results = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
        results.sum()
    })
}
