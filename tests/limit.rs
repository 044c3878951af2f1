//! Runs a program to its end, or to its time limit.
//!
//! A busy machine makes a program slow, never wrong. So a program that is still working at its time
//! limit is run again without other programs of this test, and reported as slow if it then ends. A
//! program without any progress hangs, as it would on any machine.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Number of further runs of a slow program, each alone.
pub const TRIES_ALONE: usize = 3;
/// A process that neither uses nor waits for a processor for this long counts as hung.
const STILL: Duration = Duration::from_secs(2);
/// Maximum time that a program waits for its turn to run alone, and that others wait for it.
const TURN: Duration = Duration::from_secs(120);

/// Outcome of a program.
pub enum Ended {
    Itself(Output),
    /// Killed at its time limit, with its output until then, and the state of its threads.
    Killed(Output, String),
}

/// Runs the command to its end or to its time limit, and in the latter case up to `tries_alone`
/// more times, alone.
pub fn run(command: impl Fn() -> Command, limit: Duration, tries_alone: usize) -> Ended {
    let shared = Turn::shared();
    let first = run_once(command(), limit);
    drop(shared);
    let Ended::Killed(_, threads) = &first else { return first };
    if threads.is_empty() {
        let program = command().get_program().to_string_lossy().into_owned();
        for number in 1..=tries_alone {
            let _alone = Turn::alone();
            let again = run_once(command(), limit);
            if let Ended::Itself(_) = again {
                // Bypasses the test harness, which shows no output of a test that passes.
                let line =
                    format!("slow: {program} needed {number} more tries within {limit:?}, alone\n");
                let _ = std::io::stderr().write_all(line.as_bytes()); // only a line is lost
                return again;
            }
        }
    }
    first
}

fn run_once(mut command: Command, limit: Duration) -> Ended {
    let until = Instant::now() + limit;
    // A separate process group, so that everything the program starts ends with it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{:?} does not start: {error}", command.get_program()));
    let (sender, receiver) = mpsc::channel();
    let stdout = read(child.stdout.take().expect("it is piped"), sender.clone());
    let stderr = read(child.stderr.take().expect("it is piped"), sender);
    // Each reader drops its sender at the end of its pipe, which a child of the program may hold,
    // too.
    let left = || until.saturating_duration_since(Instant::now());
    let closed = receiver.recv_timeout(left()) == Err(RecvTimeoutError::Disconnected);
    let ended = closed && ends_until(&mut child, until);
    let threads = if ended { String::new() } else { standing_still(child.id()) };
    if !ended {
        kill_group(child.id());
    }
    let status = child.wait().expect("a child of this process");
    let said = |reader: thread::JoinHandle<Vec<u8>>| reader.join().expect("a pipe is readable");
    let output = Output { status, stdout: said(stdout), stderr: said(stderr) };
    if ended { Ended::Itself(output) } else { Ended::Killed(output, threads) }
}

fn read(
    mut pipe: impl Read + Send + 'static,
    sender: mpsc::Sender<()>,
) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe is readable");
        drop(sender);
        bytes
    })
}

/// Returns whether the program ends in time. Its pipes are closed, so it has nearly always ended.
fn ends_until(child: &mut Child, until: Instant) -> bool {
    loop {
        if child.try_wait().expect("a child of this process").is_some() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn kill_group(leader: u32) {
    let group = format!("-{leader}");
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status(); // it may have ended just now
}

/// Returns the state of the group's threads if none has worked for a while, or an empty text if one
/// has.
fn standing_still(leader: u32) -> String {
    let before = threads_of(leader);
    thread::sleep(STILL);
    let after = threads_of(leader);
    let works = after.iter().any(|thread| thread.runs) || before != after;
    if works { String::new() } else { after.iter().map(|thread| thread.text.as_str()).collect() }
}

#[derive(PartialEq)]
struct Thread {
    runs: bool,
    text: String,
}

/// Returns the threads of all processes of a group, with the processor time of each.
fn threads_of(leader: u32) -> Vec<Thread> {
    let numbers = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect()
    };
    let mut threads = Vec::new();
    for process in numbers("/proc") {
        for thread in numbers(&format!("/proc/{process}/task")) {
            let folder = format!("/proc/{process}/task/{thread}");
            let Ok(stat) = fs::read_to_string(format!("{folder}/stat")) else { continue };
            // The name is followed by state, parent and group; the times are the twelfth and
            // thirteenth fields.
            let Some((head, rest)) = stat.rsplit_once(") ") else { continue };
            let words: Vec<&str> = rest.split(' ').collect();
            if words.len() < 13 || words[2] != leader.to_string() {
                continue;
            }
            let waits_in = fs::read_to_string(format!("{folder}/wchan")).unwrap_or_default();
            threads.push(Thread {
                runs: words[0] == "R",
                text: format!("{head}) {} {waits_in} {} {}\n", words[0], words[11], words[12]),
            });
        }
    }
    threads
}

/// A turn to run: for any number of programs, or for one alone.
struct Turn {
    alone: bool,
}

struct Running {
    programs: usize,
    wants_alone: usize,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { programs: 0, wants_alone: 0 });
static CHANGED: Condvar = Condvar::new();

impl Turn {
    /// Takes a turn together with others. The wait is bounded, because a program that others wait
    /// for must not wait indefinitely.
    fn shared() -> Turn {
        let mut running = Turn::wait_while(|running| running.wants_alone > 0);
        running.programs += 1;
        Turn { alone: false }
    }

    fn alone() -> Turn {
        RUNNING.lock().expect("not poisoned").wants_alone += 1;
        drop(Turn::wait_while(|running| running.programs > 0));
        Turn { alone: true }
    }

    fn wait_while(condition: impl Fn(&Running) -> bool) -> MutexGuard<'static, Running> {
        let running = RUNNING.lock().expect("not poisoned");
        let waited = CHANGED.wait_timeout_while(running, TURN, |running| condition(running));
        waited.expect("not poisoned").0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().expect("not poisoned");
        match self.alone {
            true => running.wants_alone -= 1,
            false => running.programs -= 1,
        }
        CHANGED.notify_all();
    }
}
