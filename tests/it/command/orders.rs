//! `cachealloc record`, `trim` and `limit` print the actual state. They delay neither a program
//! that cannot execute them nor any other process.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use cachealloc_tests::{Ran, Run, command, lacks};

use super::cachealloc;
use super::live::{busy, failed, kill};
use crate::record::snapshots::Place;
use crate::record::statistics::{Running, statistics};

fn control(way: &str, conf: &str) -> Running {
    let run = Run::c("controls.c").arg(way).conf(conf).env("SIM_DEADLOCK_MS", "60000");
    // Simulated time does not advance by itself.
    let run = run.env("SIM_IDLE_MS", "60000").env("SIM_WORK_NS", "1000000000000");
    let running = Running::new(run);
    running.wait_for_file();
    running
}

fn order(running: &Running, verb: &str, rest: &str) -> Ran {
    cachealloc(&format!("{verb} {} {rest}", running.child.id())).output()
}

/// Checks that the process executes the command and that this is printed after its number.
#[track_caller]
fn obeyed(running: &Running, verb: &str, rest: &str, said: &str) {
    let ran = order(running, verb, rest).ok();
    let wanted = format!("process {} {said}\n", running.child.id());
    assert_eq!((ran.stdout, ran.stderr.as_str()), (wanted, ""), "{verb} {rest}");
}

#[track_caller]
fn refused(running: &Running, verb: &str, rest: &str, said: &str) {
    failed(&order(running, verb, rest), &format!("process {} {said}", running.child.id()));
}

/// Returns the value of this key in the process's statistics, as JSON without spaces, in
/// alphabetical order.
fn says(running: &Running, key: &str) -> String {
    let json = order(running, "stats", "--json").ok().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    json[key].to_string()
}

/// Waits until the process has allocated this many blocks more. How long it takes depends on what
/// else the machine does.
fn allocates(running: &Running, blocks: u64) {
    let served = || says(running, "allocations_served").parse::<u64>().expect("a number");
    let before = served();
    while served() < before + blocks {}
}

const ALL: &str = "records every allocation and free (context all, stacks all), up to 1,000 entries of each \
                   context";

#[test]
fn recording_is_switched_while_the_program_runs() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let run = statistics("busy 3 exit").conf("max_entries:1000,snapshot:s-%n.pickle,log:quiet");
    let running = Running::new(run.folder(&place.path));
    running.wait_for_file();
    assert_eq!(says(&running, "recording"), "null");
    let snapshot = || order(&running, "snapshot", "").ok();
    obeyed(&running, "record", "on", ALL);
    allocates(&running, 2000);
    snapshot();
    obeyed(
        &running,
        "record",
        "state",
        "records the stacks of live blocks (context all, stacks all)",
    );
    snapshot();
    let rest = "on --context alloc --stacks native --max-entries 50";
    let said = "records every allocation and free (context alloc, stacks native), up to 50 entries of each context";
    obeyed(&running, "record", rest, said);
    // Omitted settings keep their values.
    obeyed(&running, "record", "on", said);
    let now =
        r#"{"record":"all","context":"alloc","stacks":"native","max_entries":50,"device":null}"#;
    assert_eq!(says(&running, "recording"), now);
    allocates(&running, 100);
    snapshot();
    obeyed(&running, "record", "off", "records nothing");
    snapshot();
    assert_eq!(running.end(), Some(0));
    // No snapshot at the end: nothing is recorded any more.
    let said = place.sound(4..=4, &["--opcodes"]);
    let count = |line: &str| line.split(", ").nth(2)?.split(' ').next()?.parse::<u32>().ok();
    let counts: Vec<u32> = said.lines().filter_map(count).collect();
    let [all, state, fifty, off] = counts[..] else { panic!("{said}") };
    // A free has two entries, and `state` keeps only the last entry.
    assert!((500..=2000).contains(&all) && state <= 2, "{said}");
    assert!((25..=100).contains(&fifty) && off == 0, "{said}");
}

/// The snapshot is as complete as if the process had been recorded from the start, however it ends.
#[test]
fn recording_started_from_outside_is_written_at_exit() {
    for signal in ["", "-TERM"] {
        let place = Place::new();
        let conf = "max_entries:1000,snapshot:s-%n.pickle,log:quiet";
        let running = Running::new(statistics("busy 2 exit").conf(conf).folder(&place.path));
        running.wait_for_file();
        obeyed(&running, "record", "on", ALL);
        allocates(&running, 100);
        if !signal.is_empty() {
            kill(signal, running.child.id());
        }
        let code = if signal.is_empty() { 0 } else { 128 + 15 };
        assert_eq!(running.end(), Some(code));
        let said = place.sound(1..=1, &[]);
        assert!(!said.contains(" 0 entries"), "{said}");
    }
}

/// While recording continues, everything known of live blocks is kept unless the user asks
/// otherwise.
#[test]
fn the_stacks_of_live_blocks_stay() {
    let running = control("idle", "record:state,snapshot:/dev/null/no,log:quiet");
    let knows = || says(&running, "call_sites").contains("hold_some");
    assert!(knows());
    for rest in ["on", "on --max-entries 7", "state", "on --context state", "on --device 0"] {
        order(&running, "record", rest).ok();
        assert!(knows(), "{rest}");
    }
    order(&running, "record", "on --clear").ok();
    assert!(!knows());
    refused(
        &running,
        "record",
        "on --device 3",
        &format!(
            "has no context on device 3; list its devices with: cachealloc stats {}",
            running.child.id()
        ),
    );
    assert_eq!(running.end(), Some(0));
}

/// Free memory is released even where the library never releases any by itself, and where it lies
/// in arenas and chunks.
#[test]
fn trim_releases_free_memory() {
    for conf in
        ["", "idle_release_s:off", "expandable_segments:true", "record:all,snapshot:/dev/null/no"]
    {
        let running = control("idle", &format!("log:quiet,{conf}"));
        let ran = order(&running, "trim", "").ok();
        let mib: f64 = ran.stdout.split_whitespace().nth(3).and_then(|it| it.parse().ok()).unwrap();
        assert!((50.0..58.0).contains(&mib) && ran.stdout.ends_with(" MiB\n"), "{conf}: {ran:?}");
        obeyed(&running, "trim", "--device 0", "released 0 B");
        assert_eq!(running.end(), Some(0));
    }
    let running = control("idle", "log:quiet,strategy:pre_allocate,initial_gpu_memory_in_mb:40");
    order(&running, "trim", "").ok();
    assert_eq!(running.end(), Some(0));
}

/// Only the command waits for the device, and no longer than its timeout.
#[test]
fn trim_releases_memory_in_use_later() {
    goes_back_later("computes", "log:quiet");
    goes_back_later("works", "log:quiet,free_mode:relaxed");
}

fn goes_back_later(way: &str, conf: &str) {
    let mut running = control(way, conf);
    let said = "released 0 B within 1 s, but not everything; the rest follows once earlier GPU work has \
                finished and no stream is capturing";
    refused(&running, "trim", "--timeout 1", said);
    // Other commands are executed meanwhile.
    obeyed(&running, "record", "on --max-entries 1000", ALL);
    obeyed(&running, "record", "off", "records nothing");
    running.child.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it reads");
    let done = || says(&running, "trims").starts_with(r#"{"asked":1,"done":1,"bytes":"#);
    for _ in 0..300 {
        if done() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let trims = says(&running, "trims");
    assert!(done() && !trims.contains(r#""bytes":0"#), "{trims}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn limit_is_set_and_removed() {
    let mut running = control("grows", "log:quiet,idle_release_s:off");
    let mut answers = BufReader::new(running.child.stdout.take().expect("a pipe"));
    let mut stdin = running.child.stdin.take().expect("a pipe");
    let mut grow = || {
        let mut line = String::new();
        stdin.write_all(b"a").expect("it reads");
        answers.read_line(&mut line).expect("it answers");
        line.trim().parse::<i32>().expect("a code")
    };
    assert_eq!(grow(), 0);
    obeyed(&running, "limit", "64M", "may hold 64.0 MiB of device 0, and holds 42.0 MiB");
    assert_eq!(grow(), 2);
    obeyed(&running, "limit", "none --device 0", "has no limit on device 0");
    assert_eq!(grow(), 0);
    let above = "may hold 10.0 MiB of device 0, and holds 80.0 MiB: more stays until it is freed";
    obeyed(&running, "limit", "10M", above);
    assert_eq!(grow(), 2);
    assert_eq!(
        says(&running, "limits"),
        r#"[{"device":0,"limit_bytes":10485760,"held_bytes":83886080}]"#
    );
    drop(stdin);
    assert_eq!(running.end(), Some(0));
    for wrong in ["4X", "G", "-1G", "0", "0G", "1e9G", "100", "nan", "9999T", ""] {
        let ran = cachealloc("limit 1").arg(wrong).output();
        assert_eq!(ran.code, Some(2), "{wrong}: {ran:?}");
    }
}

/// A command that was not begun in time is not executed later.
#[test]
fn a_stopped_program_is_not_waited_for() {
    let running = control("idle", "log:quiet");
    let id = running.child.id();
    kill("-STOP", id);
    let stopped = format!("is stopped; continue it with: kill -CONT {id}");
    let not_done = "its recording is unchanged";
    refused(&running, "record", "on", &format!("{stopped}; {not_done}"));
    let not_done = "the limit is unchanged";
    refused(&running, "limit", "1G", &format!("{stopped}; {not_done}"));
    kill("-CONT", id);
    assert_eq!(says(&running, "recording"), "null");
    assert!(says(&running, "limits").contains("\"limit_bytes\":null"));
    // Afterwards the process executes commands again.
    obeyed(
        &running,
        "limit",
        "1.5G --device 0",
        "may hold 1.50 GiB of device 0, and holds 72.0 MiB",
    );
    assert_eq!(running.end(), Some(0));
}

/// The process was killed, and its parent has not waited for it yet.
#[test]
fn a_killed_program_is_not_taken_for_another() {
    let running = control("idle", "log:quiet");
    let id = running.child.id();
    kill("-KILL", id);
    let dead =
        || fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|it| it.contains(") Z "));
    while !dead() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for (verb, rest) in [
        ("stats", ""),
        ("record", "on"),
        ("trim", ""),
        ("limit", "1G"),
        ("snapshot", ""),
        ("top", ""),
    ] {
        let ran = order(&running, verb, rest);
        let why = format!("cachealloc: process {id} has ended");
        assert!(ran.code == Some(1) && ran.stderr.starts_with(&why), "{verb}: {ran:?}");
    }
}

#[test]
fn one_control_command_at_a_time() {
    let running = busy("log:quiet,snapshot:/dev/null/no");
    std::thread::scope(|scope| {
        for what in ["record {} on --max-entries 100", "record {} off", "trim {}", "limit {} 500M"]
        {
            let id = running.child.id().to_string();
            scope.spawn(move || {
                for _ in 0..15 {
                    let ran = cachealloc(&what.replace("{}", &id)).output();
                    // Another command may have changed it before this one looked.
                    let fine =
                        ran.code == Some(0) || ran.stderr.contains("another command changed");
                    assert!(fine, "{what}: {ran:?}");
                }
            });
        }
    });
    // The lock is held without end.
    let page = fs::File::open(&running.file).expect("the page");
    page.lock().expect("it can be locked");
    let ran = order(&running, "trim", "--timeout 0");
    let id = running.child.id();
    failed(
        &ran,
        &format!(
            "another command is controlling process {id}; try again when that command has finished"
        ),
    );
    drop(page);
    order(&running, "trim", "").ok();
    assert_eq!(running.end(), Some(0));
}

/// Whatever the page contains, the program answers and continues. An invalid command changes
/// nothing.
#[test]
fn invalid_control_commands_are_refused() {
    const BEGUN: usize = 72;
    let running = control("idle", "log:quiet,snapshot:/dev/null/no");
    let page = fs::OpenOptions::new().read(true).write(true).open(&running.file).expect("the page");
    let word = |offset: usize| {
        let mut bytes = [0; 4];
        page.read_exact_at(&mut bytes, offset as u64).expect("the page");
        u32::from_ne_bytes(bytes)
    };
    let record = |kind: u32, device: i32, number: u64, words: [u8; 4]| {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&device.to_ne_bytes());
        bytes[8..16].copy_from_slice(&number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&words);
        bytes
    };
    let (einval, enodev) = (22, 19);
    // Commands of other tests for all processes of this machine wait meanwhile.
    page.lock().expect("no sender holds it for long");
    for (number, (record, errno)) in [
        ([0xff; 24], einval),
        ([0; 24], einval),
        (record(7, -1, 1, [0; 4]), einval),
        (record(1, -1, 1000, [3, 0, 0, 0]), einval),
        (record(1, -1, 1000, [2, 4, 0, 0]), einval),
        (record(1, -1, 1000, [2, 3, 3, 0]), einval),
        (record(1, -3, 1000, [2, 3, 2, 0]), einval),
        (record(1, 77, 1000, [2, 3, 2, 0]), enodev),
        (record(2, -2, 0, [0; 4]), einval),
        (record(2, i32::MAX, 0, [0; 4]), enodev),
        (record(3, i32::MIN, 1 << 30, [0; 4]), einval),
        (record(3, -1, 0, [0; 4]), einval),
    ]
    .into_iter()
    .enumerate()
    {
        let number = 1000 + number as u32;
        page.write_all_at(&record, 88).expect("the page");
        page.write_all_at(&number.to_ne_bytes(), 68).expect("the page");
        assert_eq!(says(&running, "recording"), "null");
        assert_eq!((word(BEGUN), word(76), word(80)), (number, number, errno), "{record:?}");
    }
    assert_eq!(says(&running, "trims"), r#"{"asked":0,"done":0,"bytes":0}"#);
    assert!(says(&running, "limits").contains("\"limit_bytes\":null"));
    // An unlimited number of entries is bounded by memory.
    page.write_all_at(&record(1, -1, u64::MAX - 1, [2, 3, 2, 0]), 88).expect("the page");
    page.write_all_at(&2000u32.to_ne_bytes(), 68).expect("the page");
    assert!(says(&running, "recording").contains("\"max_entries\":100000000"));
    assert_eq!(running.end(), Some(0));
}

#[test]
fn only_the_user_and_root_control_a_process() {
    let running = control("idle", "log:quiet");
    let id = running.child.id();
    let copy = std::path::PathBuf::from(format!("/tmp/cachealloc-test-{id}"));
    fs::copy(command(), &copy).expect("/tmp");
    for order in [format!("record {id} on"), format!("trim {id}"), format!("limit {id} 1G")] {
        let other = Run::program("setpriv")
            .native()
            .args("--reuid 65534 --regid 65534 --clear-groups")
            .arg(&copy)
            .args(&order);
        let ran = Place::new().run(&other.folder("/tmp"));
        if !ran.stderr.contains("setpriv") {
            assert!(ran.code == Some(1) && ran.stderr.contains("belongs to user"), "{ran:?}");
        }
    }
    let _ = fs::remove_file(copy);
    assert_eq!(says(&running, "recording"), "null");
    assert_eq!(running.end(), Some(0));
}
