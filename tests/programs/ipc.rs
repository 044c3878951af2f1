//! One process exports memory, another maps it: `ipc export` starts `ipc import` and communicates
//! with it by lines. The other process runs under the library that `IPC_PRELOAD` names, or without.
//!
//! Prints one line for each size: the results for a block at the start of a segment, for the
//! adjacent block, and for a block allocated after the first export. `right` and `refused` are both
//! good; `WRONG` is not: the importer read another block's bytes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use cachealloc_tests::driver::{Driver, Lookup, Outcome};
use cachealloc_tests::functions::IpcHandle;

const MIB: usize = 1 << 20;
const SIZES: [usize; 8] = [512, 4096, 64 << 10, MIB, MIB + MIB / 2, 3 * MIB, 20 * MIB, 64 * MIB];

/// Calls a function of the driver that has no wrapper.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),*)) => {
        // SAFETY: each argument is a value, or a pointer of the program that outlives the call.
        cachealloc_tests::driver::check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

fn main() {
    let driver = Driver::open(Lookup::ProcAddress).expect("a driver");
    match std::env::args().nth(1).as_deref() {
        Some("export") => export(&driver).expect("no driver error"),
        Some("import") => import(&driver).expect("no driver error"),
        _ => panic!("ipc export"),
    }
}

// ---- the exporter ----

fn export(d: &Driver) -> Outcome {
    let mut other = Other::start();
    // Allocated before the first export: large blocks share segments under the library.
    let early: Vec<[u64; 2]> = SIZES
        .iter()
        .map(|bytes| Ok([d.alloc(*bytes)?, d.alloc(*bytes)?]))
        .collect::<Outcome<_>>()?;
    for (bytes, [first, second]) in SIZES.into_iter().zip(early) {
        let late = d.alloc(bytes)?;
        let blocks = [first, second, late];
        let said = shared(d, &mut other, bytes, blocks)?;
        println!("{bytes}: {}", said.join(", "));
    }
    drop(other.requests);
    other.child.wait().expect("it ends");
    Ok(())
}

fn shared(d: &Driver, other: &mut Other, bytes: usize, blocks: [u64; 3]) -> Outcome<Vec<String>> {
    let mut handles = Vec::new();
    for (index, block) in blocks.into_iter().enumerate() {
        fill(d, block, bytes, 1 + index as u64)?;
        handles.push(handle(d, block)?);
    }
    let mut said: Vec<String> = Vec::new();
    for (index, handle) in handles.iter().enumerate() {
        let value = 1 + index as u64;
        let opened = other.ask(format!("open {index} {handle}"));
        said.push(match opened.as_str() {
            "0" => other.ask(format!("check {index} {bytes} {value}")),
            _ => "refused".into(),
        });
        if opened == "0" {
            // The importer writes, this process reads.
            other.ask(format!("fill {index} {bytes} {}", value + 10));
            let seen = holds(d, blocks[index], bytes, value + 10)?;
            let range = other.ask(format!("range {index}"));
            let again = other.ask(format!("open {index} {handle}"));
            let closed = other.ask(format!("close {index}"));
            said[index] += &format!(" seen:{seen} range:{range} again:{again} closed:{closed}");
        }
    }
    // Freed while they are mapped; the next block of this size must not share it.
    blocks.into_iter().try_for_each(|block| d.free(block))?;
    let next = [d.alloc(bytes)?, d.alloc(bytes)?, d.alloc(bytes)?];
    next.into_iter().try_for_each(|block| fill(d, block, bytes, 99))?;
    for (index, said) in said.iter_mut().enumerate().filter(|(_, said)| *said != "refused") {
        let kept = other.ask(format!("check {index} {bytes} {}", 11 + index)) == "right";
        let closed = other.ask(format!("close {index}"));
        let late = other.ask(format!("close {index}")) == "0";
        *said += &format!(" kept:{kept} closed:{closed} late:{late}");
    }
    next.into_iter().try_for_each(|block| d.free(block))?;
    Ok(said)
}

fn handle(d: &Driver, block: u64) -> Outcome<String> {
    let mut handle = IpcHandle::default();
    call!(d, cuIpcGetMemHandle(&mut handle, block))?;
    Ok(handle.0.map(|word| word.to_string()).join(" "))
}

struct Other {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start() -> Other {
        let mut command = Command::new(std::env::current_exe().expect("a name"));
        command.arg("import").stdin(Stdio::piped()).stdout(Stdio::piped());
        match std::env::var_os("IPC_PRELOAD") {
            Some(library) => command.env("LD_PRELOAD", library),
            None => command.env_remove("LD_PRELOAD"),
        };
        let mut child = command.spawn().expect("it starts");
        let requests = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped")).lines();
        Other { child, requests, answers }
    }

    fn ask(&mut self, request: String) -> String {
        writeln!(self.requests, "{request}").expect("it listens");
        self.answers.next().expect("it answers").expect("text")
    }
}

// ---- the importer ----

fn import(d: &Driver) -> Outcome {
    let mut opened: HashMap<u64, u64> = HashMap::new();
    for line in std::io::stdin().lines() {
        let line = line.expect("text");
        let (request, rest) = line.split_once(' ').expect("a request and its numbers");
        let numbers: Vec<u64> = rest.split(' ').map(|word| word.parse().unwrap()).collect();
        let at = opened.get(&numbers[0]).copied().unwrap_or(0);
        match request {
            "open" => {
                let handle = IpcHandle(numbers[1..].try_into().expect("eight words"));
                let mut address = 0;
                let code = call!(d, cuIpcOpenMemHandle(&mut address, handle, 1)).err().unwrap_or(0);
                if code == 0 {
                    opened.insert(numbers[0], address);
                }
                println!("{code}");
            }
            "check" => match holds(d, at, numbers[1] as usize, numbers[2])? {
                true => println!("right"),
                false => println!("WRONG"),
            },
            "fill" => {
                fill(d, at, numbers[1] as usize, numbers[2])?;
                println!("0");
            }
            "range" => {
                let (base, bytes) = d.address_range(at + 256)?;
                println!("{}+{bytes}", base as i64 - at as i64);
            }
            "close" => println!("{}", call!(d, cuIpcCloseMemHandle(at)).err().unwrap_or(0)),
            _ => panic!("{line}"),
        }
    }
    Ok(())
}

// ---- both ----

fn fill(d: &Driver, at: u64, bytes: usize, value: u64) -> Outcome {
    d.launch("late_fill", 0, &[at, bytes as u64, value, 1000])?;
    d.synchronize()
}

fn holds(d: &Driver, at: u64, bytes: usize, value: u64) -> Outcome<bool> {
    d.synchronize()?;
    Ok(d.read_words(at, bytes / 8)?.iter().all(|word| *word == value))
}
