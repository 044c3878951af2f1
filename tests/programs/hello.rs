//! The smallest complete program: allocates, fills, checks and frees.
//!
//! It runs on a GPU and on the simulated driver, with and without the preloaded library, and prints
//! what it saw.

use cachealloc_tests::driver::{Driver, Lookup};

fn main() {
    let lookup = match std::env::args().nth(1).as_deref() {
        Some("symbols") => Lookup::Symbols,
        _ => Lookup::ProcAddress,
    };
    let driver = Driver::open(lookup).unwrap_or_else(|error| {
        eprintln!("hello: {error}");
        std::process::exit(2);
    });
    match run(&driver) {
        Ok(0) => println!("hello: every word is right"),
        Ok(wrong) => {
            println!("hello: {wrong} words are wrong");
            std::process::exit(1);
        }
        Err(code) => {
            println!("hello: driver error {code}");
            std::process::exit(1);
        }
    }
}

fn run(driver: &Driver) -> Result<u64, i32> {
    const BYTES: usize = 64 << 10;
    let stream = driver.stream()?;
    let wrong = driver.alloc(8)?;
    driver.write_words(wrong, &[0])?;
    for round in 0..8 {
        let data = driver.alloc(BYTES)?;
        driver.launch("fill", stream, &[data, BYTES as u64, round, 100_000])?;
        driver.launch("check", stream, &[data, BYTES as u64, round, wrong, 0])?;
        driver.free(data)?;
    }
    let count = driver.read_words(wrong, 1)?[0];
    driver.free(wrong)?;
    driver.destroy_stream(stream)?;
    Ok(count)
}
