//! Programs that break careless versions of the freeing rules: `hazards NAME`.
//!
//! Each is legal CUDA, or common in practice, and runs cleanly without the library. The number in
//! brackets refers to the list of hazards in `docs/ordering.md`. A program prints one line, and
//! exits with 1 if the line says FAIL. `scripts/gpu run hazards` runs them on a GPU;
//! `tests/gpu/hazards.txt` names those that need the simulated driver.
//!
//! `hazards --list` prints for each program its name, the modes that keep its promise, whether it
//! also runs without the library, and what the simulation needs.

#[macro_use]
mod tools;

mod answers;
mod capture;
mod contexts;
mod memory;
mod newer_captures;
mod order;
mod visible;
mod waits;

use cachealloc_tests::driver::{Driver, Lookup};
use tools::Hazard;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "--list" {
        return all().for_each(print);
    }
    let hazard = all().find(|hazard| hazard.name == name).unwrap_or_else(|| {
        eprintln!("usage: hazards NAME; `hazards --list` prints the names");
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
    let groups: [&[Hazard]; 37] = [
        visible::results::ALL,
        visible::copies::ALL,
        visible::indirect::ALL,
        visible::kept_addresses::ALL,
        visible::meanwhile::ALL,
        visible::reach::ALL,
        visible::values::ALL,
        visible::seldom::ALL,
        visible::sharing::ALL,
        order::teardown::ALL,
        order::one_stream::ALL,
        order::each_stream::ALL,
        order::later_work::ALL,
        order::threads::ALL,
        waits::deadlock::ALL,
        waits::beside_a_free::ALL,
        waits::served_at_once::ALL,
        waits::unbounded::ALL,
        memory::stream_ordered::ALL,
        capture::ALL,
        newer_captures::ALL,
        contexts::several::ALL,
        contexts::ends::ALL,
        contexts::green::ALL,
        contexts::across::ALL,
        memory::in_flight::ALL,
        memory::ipc::ALL,
        memory::of_captures::ALL,
        memory::of_graphs::ALL,
        memory::full_cards::ALL,
        memory::scarce::ALL,
        memory::pools::ALL,
        answers::refused::ALL,
        memory::shortage::ALL,
        answers::wrong_frees::ALL,
        answers::wrong_frees::FAULTS,
        answers::reused_handles::ALL,
    ];
    groups.into_iter().flatten()
}

fn print(hazard: &Hazard) {
    let Hazard { name, kept, natively, machine, .. } = hazard;
    let natively = if *natively { "natively" } else { "ours" };
    println!("{name} {kept:?} {natively} {machine}");
}
