//! Programs that break careless versions of the freeing rules: `hazards NAME`.
//!
//! Each is legal CUDA, or common in the wild, and runs cleanly without the library. The number in
//! brackets is its rule's in the project's list. A program prints one line, and ends with 1 where
//! the line says FAIL. `scripts/gpu run hazards` runs them on a GPU; `tests/gpu/hazards.txt` names
//! those that need the simulated driver.
//!
//! `hazards --list` prints for each program: its name, which modes keep its promise, whether it
//! also runs without the library, and what the simulation needs.

#[macro_use]
mod tools;

mod visible;
mod visible_copies;
mod visible_indirect;
mod visible_reach;
mod visible_values;

mod each_stream;
mod one_stream;
mod order;
mod teardown;
mod threads;

mod deadlock;
mod stream_ordered;

mod across;
mod capture;
mod contexts;
mod ends;
mod green;
mod ipc;
mod memory;
mod pools;
mod refused;
mod scarce;
mod shortage;
mod wrong_frees;

mod beside_a_free;
mod books;
mod unbounded;

use cachealloc_tests::driver::{Driver, Lookup};
use tools::Hazard;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "--list" {
        return all().for_each(print);
    }
    let hazard = all().find(|hazard| hazard.name == name).unwrap_or_else(|| {
        eprintln!("hazards NAME, where `hazards --list` tells the names");
        std::process::exit(2);
    });
    let driver = Driver::open(Lookup::ProcAddress).unwrap_or_else(|error| {
        eprintln!("hazards: {error}");
        std::process::exit(2);
    });
    let verdict = (hazard.run)(&driver).unwrap_or_else(|code| format!("FAIL, driver error {code}"));
    println!("{name}: {verdict}");
    std::process::exit(verdict.contains("FAIL").into());
}

fn all() -> impl Iterator<Item = &'static Hazard> {
    let groups: [&[Hazard]; 28] = [
        visible::ALL,
        visible_copies::ALL,
        visible_indirect::ALL,
        visible_reach::ALL,
        visible_values::ALL,
        teardown::ALL,
        one_stream::ALL,
        each_stream::ALL,
        order::ALL,
        threads::ALL,
        deadlock::ALL,
        beside_a_free::ALL,
        unbounded::ALL,
        stream_ordered::ALL,
        capture::ALL,
        contexts::ALL,
        ends::ALL,
        green::ALL,
        across::ALL,
        ipc::ALL,
        memory::ALL,
        scarce::ALL,
        pools::ALL,
        refused::ALL,
        shortage::ALL,
        wrong_frees::ALL,
        wrong_frees::FAULTS,
        books::ALL,
    ];
    groups.into_iter().flatten()
}

fn print(hazard: &Hazard) {
    let Hazard { name, kept, natively, machine, .. } = hazard;
    let natively = if *natively { "natively" } else { "ours" };
    println!("{name} {kept:?} {natively} {machine}");
}
