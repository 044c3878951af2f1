//! `cachealloc recover`: whatever kills a recording process, at whatever instruction, its history
//! is available.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cachealloc_tests::{Ran, Run, command, compile, lacks, library, tier};

use crate::command::cachealloc;
use crate::record::snapshots::{Place, shows_pinned_memory, trigger};

/// Start times of the spawned processes, by number: with thousands of processes in a run, numbers
/// are reused, and some tests leave such files.
static STARTS: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

/// Returns a process's start time in the kernel's ticks. `process` is a number, or `self`.
fn start_of(process: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("/proc");
    let (_, words) = stat.rsplit_once(") ").expect("a name");
    words.split(' ').nth(19).and_then(|word| word.parse().ok()).expect("a start")
}

/// Returns the files of the last process spawned here with this number. For any other process, it
/// returns the files of those that began after this one.
pub fn left_by(process: u32) -> Vec<PathBuf> {
    let middle = format!("-{process}-");
    let own = STARTS.lock().expect("no panic").get(&process).copied();
    let since = start_of("self");
    let files = fs::read_dir("/dev/shm").expect("/dev/shm").flatten();
    let files = files.filter(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        // If the name was taken, a random part follows the start time.
        let start = name.split(&middle).nth(1).and_then(|rest| rest.split('.').next());
        let start = start.and_then(|start| start.parse::<u64>().ok());
        let is_its = |start| own.map_or(start >= since, |own| start == own);
        name.starts_with("cachealloc-history-") && start.is_some_and(is_its)
    });
    files.map(|file| file.path()).collect()
}

pub fn spawn(place: &Place, run: &Run) -> Child {
    let mut command = run.clone().folder(&place.path).plain_command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().expect("it starts");
    // The start time can be read until the child is waited for.
    STARTS.lock().expect("no panic").insert(child.id(), start_of(&child.id().to_string()));
    child
}

/// Runs the program to its end, and returns its process number.
pub fn ended(place: &Place, run: &Run) -> u32 {
    let mut child = spawn(place, run);
    child.wait().expect("a child");
    child.id()
}

fn recover(place: &Place, process: u32) -> Ran {
    place.run(&cachealloc(&format!("recover {process} --remove -o {process}.pickle")))
}

/// Checks that the files left by the process give one sound snapshot, and are removed. Returns the
/// checker's output.
#[track_caller]
pub fn recovered(place: &Place, process: u32, options: &[&str]) -> String {
    let ran = recover(place, process);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout, format!("{process}.pickle\n"));
    assert_eq!(left_by(process), [""; 0].map(PathBuf::from));
    place.sound(1..=1, options)
}

fn killed(way: &str) -> Run {
    Run::c("killed.c").arg(way)
}

/// However many histories there are, none is left out, and the list of processes is read once at
/// most.
#[test]
fn many_histories_are_listed_at_once() {
    const COUNT: usize = 40;
    if lacks("strace") {
        return;
    }
    let place = Place::new();
    let process = ended(&place, &killed("now").conf("record:state,log:quiet"));
    let left = left_by(process);
    let [file] = &left[..] else { panic!("{left:?}") };
    let copies: Vec<PathBuf> =
        (0..COUNT).map(|copy| PathBuf::from(format!("{}.{copy}", file.display()))).collect();
    copies.iter().for_each(|copy| fs::hard_link(file, copy).expect("/dev/shm"));
    let calls = place.path.join("calls");
    let listed = Command::new("sh")
        .args(["-c", "ulimit -Sn 30; exec strace -f -e trace=openat -o \"$0\" \"$1\" recover"])
        .args([&calls, &command()])
        .output()
        .expect("strace runs");
    let gone = copies.iter().chain(&left).map(fs::remove_file);
    assert_eq!(gone.filter(Result::is_err).count(), 0);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let begin = format!("{process:>7}  killed, ");
    assert_eq!(listed.lines().filter(|line| line.starts_with(&begin)).count(), COUNT + 1);
    let calls = fs::read_to_string(calls).expect("strace writes it");
    assert!(calls.matches("\"/proc\"").count() <= 1, "{calls}");
}

/// The history also contains the host memory allocated for devices.
#[test]
fn pinned_memory_is_recovered() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let run = Run::c("pinned.c").arg("killed").conf("record:all,log:quiet");
    let process = ended(&place, &run);
    recovered(&place, process, &["--from-start"]);
    shows_pinned_memory(&place);
}

#[test]
fn killed_at_random_moments() {
    if lacks("python3") {
        return;
    }
    let confs = [
        "record:all",
        "record:all,max_entries:50",
        "record:all,expandable_segments:true",
        "record:state",
        "record:all,max_entries:3000,expandable_segments:true",
        "record:all,max_entries:3000,free_mode:relaxed",
    ];
    let mut overflowed = 0;
    for seed in 1..=tier::count(12, 36) {
        let place = Place::new();
        let run = Run::program(env!("CARGO_BIN_EXE_random"))
            .args(&format!("{seed} 1000000 {} own", 1 + seed % 4))
            .env("SIM_MEMORY_MB", if seed % 3 == 0 { "192" } else { "1024" })
            .conf(&format!("log:quiet,{}", confs[seed as usize % confs.len()]));
        let mut child = spawn(&place, &run);
        let begun = Instant::now();
        while left_by(child.id()).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it records nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(seed * 7919 % 150_000));
        child.kill().expect("a child");
        child.wait().expect("a child");
        // The program may have written some snapshots when it ran out of memory.
        for name in place.names() {
            fs::remove_file(place.path.join(name)).expect("a file");
        }
        let said = recovered(&place, child.id(), &[]);
        overflowed += usize::from(said.contains("not from the start"));
    }
    assert!(overflowed >= tier::count(2, 6), "{overflowed} rings overflowed");
}

/// Kills the process after instructions that change shared state: after some of them in each
/// configuration, or after all with `RECOVER_ALL=1`.
#[test]
#[ignore = "long tier"]
fn killed_at_any_instruction() {
    const CONFS: [&str; 3] = [
        "record:all",
        "record:all,max_entries:6,expandable_segments:true,free_mode:strict",
        "record:state",
    ];
    let step = if std::env::var_os("RECOVER_ALL").is_some() { 1 } else { 30 };
    for (first, conf) in CONFS.iter().enumerate() {
        let place = Place::new();
        let copies = place.path.join("copies");
        fs::create_dir(&copies).expect("a folder");
        let run = Run::c("stepped.c").within(300).preload(&[]).arg(&copies);
        let run = run.arg(compile("killed.c")).arg("stepped").env("STEPPED_PRELOAD", library());
        let ran = place.run(&run.conf(&format!("{conf},log:quiet,snapshot:/dev/null"))).ok();
        let count: usize = ran.stdout.trim().parse().expect("a number");
        assert!(count > 100, "{conf}: {count} changes");
        let tried = (first..count).step_by(step);
        for copy in tried.clone() {
            let ran = place.run(&cachealloc(&format!("recover copies/{copy} -o {copy}.pickle")));
            assert_eq!(ran.code, Some(0), "{conf}, change {copy} of {count}: {ran:?}");
        }
        fs::remove_dir_all(copies).expect("the folder");
        place.sound(tried.len()..=tried.len(), &[]);
    }
}

/// Every entry completed before the end is there, up to the last call.
#[test]
fn nothing_is_lost() {
    for way in ["raise KILL", "raise SEGV"] {
        let (place, whole) = (Place::new(), Place::new());
        whole.run(&trigger("return").conf("record:all"));
        let process = ended(&place, &trigger(way).conf("record:all"));
        let numbers = |said: &str| said.split_once(": sound: ").map(|it| it.1.to_string());
        let expected = whole.sound(1..=1, &["--from-start"]);
        let found = recovered(&place, process, &["--from-start"]);
        assert_eq!(numbers(&found), numbers(&expected), "{way}");
    }
}

/// The snapshot contains the last entries of a ring, and the live blocks.
#[test]
fn state_is_recovered_without_history() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let process = ended(&place, &killed("now").conf("record:state"));
    let said = recovered(&place, process, &[]);
    let ran = place.run(&cachealloc(&format!("top-sites {process}.pickle"))).ok();
    assert!(said.contains(" 0 entries"), "{said}");
    assert!(
        ran.stdout.contains("hold record/killed.c:11") && ran.stdout.contains("main"),
        "{ran:?}"
    );
}

/// A block from before the recording has no entry, but is in the snapshot.
#[test]
fn recording_may_begin_late() {
    let place = Place::new();
    let process = ended(&place, &killed("late"));
    let said = recovered(&place, process, &[]);
    let shown = place.run(&cachealloc(&format!("top-sites {process}.pickle --at end"))).ok().stdout;
    // The other block is from before: 14.3 MiB of the library's.
    assert!(
        shown.contains("hold record/killed.c") && shown.contains("6.68 MiB"),
        "{said}\n{shown}"
    );
}

#[test]
fn a_clean_end_leaves_nothing() {
    for (way, conf) in [
        ("return", "record:all"),
        ("_exit", "record:all"),
        ("quick_exit", "record:state"),
        ("raise TERM", "record:all"),
        ("abort", "record:all"),
        ("return", "record:all,live:false"),
        ("return", "record:all,signal:off"),
        // The process records nothing.
        ("raise KILL", "record:off"),
    ] {
        let place = Place::new();
        let process = ended(&place, &trigger(way).conf(conf));
        assert_eq!(left_by(process).len(), 0, "{way}, {conf}");
    }
    // A thread inside `abort` does not run on while the writer works, whatever its stack holds.
    for _ in 0..tier::count(4, 40) {
        let place = Place::new();
        let process = ended(&place, &trigger("abort").conf("record:all"));
        assert_eq!(left_by(process).len(), 0);
    }
}

/// The snapshot due at the end is not lost with its folder.
#[test]
fn an_end_without_its_snapshot_leaves_the_history() {
    let place = Place::new();
    let process =
        ended(&place, &trigger("return").conf("record:all,snapshot:/nowhere/snapshot.pickle"));
    recovered(&place, process, &["--from-start"]);
}

#[test]
fn a_child_leaves_the_history_alone() {
    let place = Place::new();
    let process = ended(&place, &killed("forking").conf("record:all"));
    let said = recovered(&place, process, &["--from-start"]);
    // Five allocations, two frees; the segments are those of the driver.
    let shown = place.run(&cachealloc(&format!("top-sites {process}.pickle --at end"))).ok().stdout;
    assert!(shown.contains("hold record/killed.c:11"), "{said}\n{shown}");
    assert!(!shown.contains("with_child"), "{shown}");
}

#[test]
fn a_process_that_runs_is_left_alone() {
    let place = Place::new();
    let mut child = spawn(&place, &killed("waits").conf("record:all"));
    let mut ready = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
    let id = child.id();
    let ran = recover(&place, id);
    let why = format!(
        "cachealloc: process {id} is still running and recording; get a snapshot with: cachealloc snapshot {id}\n"
    );
    assert_eq!((ran.code, ran.stderr), (Some(1), why));
    assert_eq!(left_by(id).len(), 1);
    child.kill().expect("a child");
    child.wait().expect("a child");
    // Other recording processes do not touch the files either.
    ended(&Place::new(), &trigger("return").conf("record:all"));
    let list = cachealloc("recover").output().ok().stdout;
    assert!(list.contains(&left_by(id)[0].display().to_string()), "{list}");
    recovered(&place, id, &[]);
}

/// `exec` keeps the process number; the history of the program before it is available.
#[test]
fn a_process_may_become_another_program() {
    let place = Place::new();
    let mut child = spawn(&place, &killed("becomes").conf("record:all"));
    let begun = Instant::now();
    let program = PathBuf::from(format!("/proc/{}/exe", child.id()));
    while !fs::read_link(&program).is_ok_and(|path| !path.ends_with("killed")) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    recovered(&place, child.id(), &["--from-start"]);
    child.kill().expect("a child");
    child.wait().expect("a child");
}

#[test]
fn files_without_a_history_are_refused() {
    let place = Place::new();
    fs::write(place.path.join("file"), [7; 5000]).expect("a file");
    fs::write(place.path.join("empty"), "").expect("a file");
    for (what, why) in [
        ("file", "it is not the history of a killed process"),
        ("empty", "it is not the history of a killed process"),
        (".", "it is not a file"),
        ("/no/such/file", "No such file or directory"),
        ("4194999", "process 4194999 has left no history in /dev/shm"),
    ] {
        let ran = place.run(&cachealloc(&format!("recover {what}")));
        assert!(ran.code == Some(1) && ran.stderr.contains(why), "{what}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

/// Python functions have the names of at most a second before the end.
#[test]
fn python_is_named() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let script = r#"
import ctypes, os, signal, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
def weights():
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(5 << 20)) == 0
weights()
time.sleep(2.5)
os.kill(os.getpid(), signal.SIGKILL)
"#;
    fs::write(place.path.join("training.py"), script).expect("a file");
    let process = ended(&place, &Run::program("python3").arg("training.py").conf("record:all"));
    let ran = recover(&place, process);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    fs::remove_file(place.path.join("training.py")).expect("the file");
    place.sound(1..=1, &["--from-start"]);
    let shown = place.run(&cachealloc(&format!("top-sites {process}.pickle --json"))).ok().stdout;
    assert!(shown.contains("weights") && shown.contains("training.py"), "{shown}");
}

/// A library that has been replaced since has other functions at the same addresses.
#[test]
fn another_build_gives_no_names() {
    let place = Place::new();
    let program = place.path.join("program");
    // Not by `fs::copy`: a program that another test starts meanwhile would have this file open for
    // writing.
    let copy = Command::new("cp").arg(compile("killed.c")).arg(&program).status();
    assert!(copy.expect("cp").success());
    let process = ended(&place, &Run::program(&program).arg("now").conf("record:all"));
    fs::remove_file(&program).expect("the copy");
    let other = Command::new("gcc")
        .args(["-x", "c", "-", "-g", "-Wl,--build-id", "-o"])
        .arg(&program)
        .stdin(Stdio::piped())
        .spawn()
        .and_then(|mut gcc| {
            let mut source = gcc.stdin.take().expect("a pipe");
            std::io::Write::write_all(&mut source, b"int main(void) { return 0; }")?;
            drop(source);
            gcc.wait()
        });
    assert!(other.expect("gcc").success());
    let ran = recover(&place, process);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    fs::remove_file(&program).expect("the file");
    place.sound(1..=1, &["--from-start"]);
    let shown = place.run(&cachealloc(&format!("top-sites {process}.pickle --json"))).ok().stdout;
    assert!(shown.contains("??") && !shown.contains("hold"), "{shown}");
}
