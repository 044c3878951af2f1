//! Replays an allocation trace: `replay FILE`. Prints the peak of the program's allocations. In
//! addition to the lines of a trace (`tests/data/traces/README.md`), `w MILLISECONDS` waits that
//! long.
//!
//! The output is the same with and without the library, whose own table shows the reserved memory
//! (`stats_on_exit:stderr`).

use std::collections::HashMap;
use std::time::Duration;

use cachealloc_tests::driver::{Driver, Lookup};

fn main() {
    let path = std::env::args().nth(1).unwrap_or_else(|| stop("usage: replay FILE"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| stop(&format!("{path}: {e}")));
    let driver = Driver::open(Lookup::ProcAddress).unwrap_or_else(|error| stop(&error));
    let mut alive: HashMap<&str, (u64, u64)> = HashMap::new();
    let (mut live_bytes, mut peak_bytes) = (0, 0);
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["a", id, bytes] => {
                let bytes: u64 = bytes.parse().unwrap_or_else(|_| stop(&format!("line {number}")));
                // Some storages of the logs are empty; the driver has no such allocation.
                let address = match bytes {
                    0 => 0,
                    _ => driver.alloc(bytes as usize).unwrap_or_else(|code| {
                        stop(&format!("line {number}: {bytes} bytes: error {code}"))
                    }),
                };
                alive.insert(id, (address, bytes));
                live_bytes += bytes;
                peak_bytes = peak_bytes.max(live_bytes);
            }
            ["f", id] => {
                let (address, bytes) =
                    alive.remove(id).unwrap_or_else(|| stop(&format!("line {number}: not alive")));
                driver
                    .free(address)
                    .unwrap_or_else(|code| stop(&format!("line {number}: free: error {code}")));
                live_bytes -= bytes;
            }
            ["w", milliseconds] => {
                let milliseconds = milliseconds.parse();
                let wait = milliseconds.unwrap_or_else(|_| stop(&format!("line {number}")));
                std::thread::sleep(Duration::from_millis(wait));
            }
            _ => {}
        }
    }
    println!("peak live {:.1} MiB", peak_bytes as f64 / f64::from(1 << 20));
}

fn stop(why: &str) -> ! {
    eprintln!("replay: {why}");
    std::process::exit(1)
}
