//! `cachealloc stats` and `cachealloc top`: running programs, seen from outside.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use cachealloc_tests::{Ran, Run, command, lacks, scratch_file};

use super::{cachealloc, masked};
use crate::record::snapshots::Place;
use crate::record::statistics::{Running, check, statistics};

/// Starts a busy program under the library, and waits for its file.
pub fn busy(conf: &str) -> Running {
    let running = Running::new(statistics("busy 2 exit").conf(conf));
    running.wait_for_file();
    running
}

pub fn kill(signal: &str, process: u32) {
    let kill = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(kill.expect("kill").success());
    // `kill` returns before the process has stopped.
    let stat = || fs::read_to_string(format!("/proc/{process}/stat")).expect("/proc");
    while signal == "-STOP" && !stat().contains(") T ") {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Checks for one sentence on stderr, and no other output.
#[track_caller]
pub fn failed(ran: &Ran, wanted: &str) {
    assert_eq!(ran.stderr, format!("cachealloc: {wanted}\n"));
    assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(1)));
}

#[test]
fn statistics_of_one() {
    if lacks("python3") {
        return;
    }
    let running = busy("free_mode:strict");
    let process = running.child.id();
    let ran = cachealloc(&format!("stats {process}")).output().ok();
    let program = masked(&running_command(process));
    let wanted = format!(
        "process #: {}
cachealloc #, free_mode strict

device # now at the peak
 requested # MiB # MiB
 allocated # MiB # MiB
 reserved # MiB # MiB
 inactive split # MiB # MiB
 blocks #
 segments #

allocations #
of these without the driver #
hit rate # %
since one reached the driver # ms
barriers #
driver: release # (# ms)
driver: reserve # (# ms)
",
        program.trim_end()
    );
    let found = masked(&ran.stdout);
    // Sizes change while the program runs; units with them.
    let found = found
        .replace("KiB", "MiB")
        .replace("# B", "# MiB")
        .replace("(# us)", "(# ms)")
        .replace("driver # us", "driver # ms")
        .replace("driver # s", "driver # ms")
        .replace("(< # us)", "(# ms)");
    assert!(found.starts_with(&wanted), "{found}\n{wanted}");
    let end =
        "memory by library: not recorded; start the program with: cachealloc run --record=state\n";
    assert!(found.ends_with(end), "{found}");
    // The same numbers as in the file at the end.
    let json = cachealloc(&format!("stats --json {process}")).output().ok().stdout;
    let file = scratch_file("stats");
    fs::write(&file, json).expect("target/ is writable");
    assert!(check(&[], &file).contains("1 sound reports"));
    let _ = fs::remove_file(file);
    assert_eq!(running.end(), Some(0), "the program did not notice");
}

fn running_command(process: u32) -> String {
    let line = fs::read(format!("/proc/{process}/cmdline")).expect("the process");
    String::from_utf8_lossy(&line).replace('\0', " ").trim().to_string()
}

#[test]
fn a_table_of_all_and_of_one() {
    let place = Place::new();
    let conf = "record:all,max_entries:1000,snapshot:/dev/null/no";
    let (plain, recording) = (busy("log:quiet"), busy(&format!("{conf},log:quiet")));
    let ran = place.run(&cachealloc("top")).ok();
    let title = ran.stdout.lines().next().expect("a title");
    let columns = "PID GPU ALLOCATED PEAK RESERVED BLOCKS ALLOC/S HITS WAITS/S COMMAND";
    // Root may see a program that another test runs as another user.
    let found: Vec<&str> = title.split_whitespace().filter(|it| *it != "USER").collect();
    assert_eq!(found.join(" "), columns);
    for running in [&plain, &recording] {
        let process = running.child.id().to_string();
        let mut rows = ran.stdout.lines().filter(|row| row.trim_start().starts_with(&process));
        let row = rows.next().unwrap_or_else(|| panic!("{process} is missing: {ran:?}"));
        assert!(
            row.ends_with("busy 2 exit") && row.contains(" k ") || row.contains(" M "),
            "{row}"
        );
    }
    let one = place.run(&cachealloc("top -n 1")).ok().stdout;
    assert_eq!(one.lines().take_while(|line| !line.is_empty()).count(), 2, "{one}");
    // For one process: its libraries, and the lines of its program that allocate.
    let ran = place.run(&cachealloc(&format!("top {}", recording.child.id()))).ok();
    let sites = "BYTES AT THE PEAK BLOCKS ALLOC/S GPU LIBRARY CALL SITE";
    let text = masked(&ran.stdout);
    for wanted in [
        sites,
        "LIBRARY GPU BYTES AT THE PEAK\napp #",
        "allocate_until_stopped record/statistics.c:#",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    let ran = place.run(&cachealloc(&format!("top {}", plain.child.id()))).ok();
    assert!(ran.stdout.contains("not recorded; start the program with"), "{ran:?}");
    // As JSON: a list with all keys of each, and the call sites if one process is named.
    let json = place.run(&cachealloc(&format!("top --json {}", recording.child.id()))).ok().stdout;
    assert!(
        json.starts_with("[{\"schema_version\":1,\"cachealloc\":\"")
            && json.contains("\"frames\":[{\"name\":\"allocate_until")
    );
    assert!(json.trim_end().ends_with("\"}]") && json.contains("\"command\":\"/"), "{json}");
    let all = place.run(&cachealloc("top --json")).ok().stdout;
    assert!(all.contains("\"call_sites\":null"), "{all}");
    for running in [plain, recording] {
        assert_eq!(running.end(), Some(0));
    }
}

/// A request for call sites gets them, however many other requests ask for less meanwhile.
#[test]
fn others_may_ask_meanwhile() {
    let running = busy("record:state,snapshot:/dev/null/no,log:quiet");
    let process = running.child.id();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    cachealloc(&format!("stats {process}")).output().ok();
                }
            });
        }
        let answers = (0..40).map(|_| cachealloc(&format!("stats --json {process}")).output());
        let sites: Vec<bool> =
            answers.map(|ran| ran.ok().stdout.contains("\"frames\": [\n")).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(sites, [true; 40]);
    });
    assert_eq!(running.end(), Some(0));
}

/// With an interval, tables follow each other until the program ends.
#[test]
fn again_and_again() {
    let running = busy("log:quiet");
    let arguments = format!("top --interval 0.1 {}", running.child.id());
    let mut command = cachealloc(&arguments).plain_command();
    let mut top = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut output = BufReader::new(top.stdout.take().expect("a pipe"));
    let mut text = String::new();
    while text.matches("busy 2 exit\n").count() < 2 {
        assert_ne!(output.read_line(&mut text).expect("text"), 0, "{text}");
    }
    assert_eq!(running.end(), Some(0));
    output.read_to_string(&mut text).expect("text");
    assert!(
        top.wait().expect("it ends").success() && text.matches("COMMAND").count() >= 2,
        "{text}"
    );
    // A rate needs two samples.
    let rates: Vec<_> = text.lines().filter(|line| line.ends_with("busy 2 exit")).collect();
    assert!(rates[0].contains(" - ") && !rates[1].contains(" - "), "{text}");
}

#[test]
fn processes_without_statistics() {
    let stats = |process: u32| cachealloc(&format!("stats {process}")).output();
    failed(
        &stats(4_000_000),
        "there is no process 4000000; `cachealloc top` lists the processes under cachealloc",
    );
    let sleeper = |run: Run| run.arg("60").plain_command().spawn().expect("it starts");
    let end = |mut child: Child| {
        let _ = child.kill();
        let _ = child.wait();
    };
    let child = sleeper(Run::program("sleep").native());
    let id = child.id();
    failed(
        &wait_for_exec(id, || stats(id)),
        &format!(
            "process {id} (sleep 60) does not run under cachealloc; start it with: cachealloc run -- \
             sleep 60"
        ),
    );
    end(child);
    for (name, value, wanted) in [
        (
            "A",
            "",
            "runs under cachealloc and has not used CUDA yet; try again once it has allocated GPU memory",
        ),
        (
            "CACHEALLOC",
            "0",
            "runs with CACHEALLOC=0: the library is disabled; start it without that variable",
        ),
        ("CACHEALLOC_CONF", "live:false", "runs with live:false; start it without that option"),
        (
            "CACHEALLOC_CONF",
            "signal:off",
            "runs with signal:off, which disables its statistics; start it without that option",
        ),
    ] {
        let mut command = Run::program("sleep").arg("60").plain_command();
        let child = command.env(name, value).spawn().expect("it starts");
        let id = child.id();
        failed(&wait_for_exec(id, || stats(id)), &format!("process {id} {wanted}"));
        end(child);
    }
    let running = busy("log:quiet");
    let id = running.child.id();
    kill("-STOP", id);
    let ran = cachealloc(&format!("snapshot --timeout 1 {id}")).output();
    let wanted = format!("process {id} is stopped; continue it with: kill -CONT {id}");
    failed(&ran, &wanted);
    // The other processes are still shown.
    let table = cachealloc("top").output().ok().stdout;
    let row = table.lines().find(|row| row.trim_start().starts_with(&format!("{id} ")));
    assert!(row.is_some_and(|row| row.ends_with("(stopped)")), "{table}");
    kill("-CONT", id);
    assert_eq!(running.end(), Some(0));
}

/// `spawn` returns when the child has become the program; its libraries are mapped a moment later.
fn wait_for_exec(process: u32, look: impl Fn() -> Ran) -> Ran {
    let state = || fs::read_to_string(format!("/proc/{process}/wchan")).unwrap_or_default();
    for _ in 0..200 {
        if state().contains("nanosleep") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    look()
}

/// Files of dead processes are removed. A foreign file, or one of another user, stays and has no
/// effect.
#[test]
fn files_of_dead_processes_are_removed() {
    let file = crate::record::statistics::page_of;
    let killed = Running::new(statistics("busy 2 kill"));
    killed.wait_for_file();
    let left = killed.file.clone();
    let bytes = fs::read(&left).expect("the file");
    let id = killed.child.id();
    assert_eq!(killed.end(), Some(137));
    let ran = cachealloc("top").output().ok();
    assert!(!left.exists() && !ran.stdout.contains(&format!("{id} ")), "{ran:?}");
    // A file with the number of a living process that is a different one is removed as well.
    let own = file(std::process::id());
    fs::write(&own, &bytes).expect("/dev/shm");
    let ran = cachealloc(&format!("stats {}", std::process::id())).output();
    assert!(ran.stderr.contains("does not run under cachealloc"), "{ran:?}");
    // Text, an empty file, a pipe, a link to a foreign file.
    fs::write(&own, "no head at all").expect("/dev/shm");
    let ran = cachealloc(&format!("stats {}", std::process::id())).output();
    assert!(ran.stderr.contains("runs under another version of the library"), "{ran:?}");
    // Numbers that neither a process nor another run of the tests has.
    let beyond = 10 * std::process::id() + 100_000_000;
    let (empty, pipe, link) = (file(beyond), file(beyond + 1), file(beyond + 2));
    fs::write(&empty, "").expect("/dev/shm");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let running = busy("log:quiet");
    std::os::unix::fs::symlink(&running.file, &link).expect("/dev/shm");
    let table = cachealloc("top").output().ok().stdout;
    let id = running.child.id().to_string();
    let rows = table.lines().filter(|row| row.split_whitespace().next() == Some(&id));
    assert_eq!(rows.count(), 1, "{table}");
    assert_eq!(running.end(), Some(0));
    // The file of a process that does not exist, and with no contents.
    assert!(!empty.exists(), "{}", empty.display());
    for path in [own, pipe, link] {
        assert!(fs::remove_file(&path).is_ok(), "{}", path.display());
    }
}

/// Only root can be another user here.
#[test]
fn processes_of_others() {
    let running = busy("log:quiet");
    let id = running.child.id();
    let place = Place::new();
    let copy = std::path::PathBuf::from(format!("/tmp/cachealloc-test-{id}"));
    fs::copy(command(), &copy).expect("/tmp");
    let other = Run::program("setpriv")
        .native()
        .args("--reuid 65534 --regid 65534 --clear-groups")
        .arg(&copy)
        .args(&format!("stats {id}"));
    let ran = place.run(&other.folder("/tmp"));
    if !ran.stderr.contains("setpriv") {
        let user = fs::metadata("/proc/self").expect("/proc").uid();
        failed(&ran, &format!("process {id} belongs to user {user}; run the command as that user"));
    }
    let _ = fs::remove_file(copy);
    // A file under one user's name that another user owns: any user may make one there.
    if std::os::unix::fs::chown(&running.file, Some(65534), None).is_ok() {
        let table = cachealloc("top").output().ok().stdout;
        let listed = table.lines().any(|row| row.trim_start().starts_with(&format!("{id} ")));
        let user = fs::metadata("/proc/self").expect("/proc").uid();
        std::os::unix::fs::chown(&running.file, Some(user), None).expect("root may");
        assert!(!listed, "{table}");
    }
    assert_eq!(running.end(), Some(0));
}
