//! The statistics as others see them: by the C functions, in a file at the end, and live from
//! another process. `scripts/check-statistics.py` knows which relations between the numbers must
//! hold.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cachealloc_tests::{Run, compile, lacks, root};

use crate::record::snapshots::{Place, trigger};

pub fn statistics(way: &str) -> Run {
    way.split(' ').fold(Run::c("statistics.c"), |run, word| run.arg(word))
}

#[track_caller]
pub fn check(options: &[&str], file: &Path) -> String {
    let checker = Command::new("python3")
        .arg(root().join("scripts/check-statistics.py"))
        .args(options)
        .arg(file)
        .output()
        .expect("python3 is installed: see .ci/run");
    let said = String::from_utf8_lossy(&checker.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&checker.stderr).into_owned();
    assert!(checker.status.success(), "{said}{wrong}");
    said
}

/// The program itself compares the statistics with its own calls, in each mode and while recording.
#[test]
fn numbers_are_what_the_program_did() {
    for conf in ["", "free_mode:strict", "free_mode:relaxed", "record:state", "record:all"] {
        let conf = format!("{conf},log:quiet,snapshot:/dev/null");
        // In mode `relaxed` a block stays active until a call checks whether its work is complete.
        let lists = (!conf.contains("relaxed")).then_some("lists");
        for way in lists.into_iter().chain(["contexts", "busy 1 exit", "busy 4 exit"]) {
            let ran = statistics(way).conf(&conf).output().ok();
            assert_eq!(ran.stderr, "", "{way}, {conf}");
        }
    }
}

/// The allocator counts a red zone as part of each request, which a thread cache does not know.
#[test]
fn with_red_zones_no_list_hands_out_blocks() {
    let ran = statistics("zones").conf("red_zone:64,log:quiet").output().ok();
    assert_eq!(ran.stderr, "");
}

/// A block freed on a stream no longer counts when another thread's cache hands out its next block.
#[test]
fn the_peak_is_what_the_program_held_at_once() {
    for conf in ["log:quiet", "log:quiet,record:all,snapshot:/dev/null"] {
        for way in ["peak", "lists-peak"] {
            let ran = statistics(way).conf(conf).output().ok();
            assert_eq!(ran.stderr, "", "{way}, {conf}");
        }
    }
}

#[test]
fn the_c_functions_answer() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    for conf in ["log:quiet", "log:quiet,record:all,snapshot:/dev/null"] {
        let ran = place.run(&statistics("api").conf(conf)).ok();
        let file = place.path.join("api.json");
        fs::write(&file, &ran.stdout).expect("target/ is writable");
        let said = check(&[], &file);
        assert!(said.contains("1 sound reports, 2 allocations"), "{said}");
        let recorded = !ran.stdout.contains("\"libraries\": null");
        assert_eq!(recorded, conf.contains("record"), "{}", ran.stdout);
        assert_eq!(recorded, ran.stdout.contains("\"name\": \"api\""), "{}", ran.stdout);
    }
}

/// However a process ends, it leaves one complete file.
#[test]
fn a_file_at_every_end() {
    if lacks("python3") {
        return;
    }
    for way in ["return", "exit", "_exit", "_Exit", "quick_exit", "raise TERM", "exit_busy"] {
        let place = Place::new();
        let native = place.run(&trigger(way).native());
        let ran = place.run(&trigger(way).conf("stats_on_exit:all-%n.json"));
        assert_eq!((&native.stdout, native.code), (&ran.stdout, ran.code), "{way}: {ran:#?}");
        assert_eq!(place.names(), ["all-0.json"], "{way}");
        assert!(ran.stderr.contains("statistics: "), "{way}: {}", ran.stderr);
        check(&[], &place.path.join("all-0.json"));
    }
    let place = Place::new();
    place.run(&trigger("no_cuda").conf("stats_on_exit:all.json"));
    place.run(&trigger("return").conf("stats_on_exit:/no/such/folder/all.json"));
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_file_of_text_for_people() {
    let place = Place::new();
    place.run(&statistics("contexts").conf("stats_on_exit:all.txt")).ok();
    let text = fs::read_to_string(place.path.join("all.txt")).expect("the file");
    assert_eq!(text.matches("CUDA memory summary, device ID 0, context").count(), 2, "{text}");
    let table = text.lines().filter(|line| line.starts_with('|'));
    assert!(
        table.clone().count() == 2 * 47 && table.clone().all(|line| line.len() == 77),
        "{text}"
    );
    for wanted in ["allocations served  ", "driver: reserve  ", "not recorded (record:state)"] {
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn the_table_counts_the_drivers_calls() {
    let ran = statistics("contexts").conf("stats_on_exit:stderr").output().ok();
    let row = ran.stderr.lines().find_map(|line| {
        line.strip_prefix("cachealloc:   cuMemAlloc calls that reached the driver")
    });
    let count = row.and_then(|count| count.trim().parse().ok());
    assert_eq!(count, Some(ran.report.calls("cuMemAlloc_v2")), "{}", ran.stderr);
}

/// 22 MiB at the peak, 7 at the end, as counted by the program. After a reset of the peak, 10.
#[test]
fn holders_by_library() {
    let ways = [("state", "holders", 22), ("all", "holders", 22), ("state", "holders_anew", 10)];
    for (record, what, peak_mib) in ways {
        let place = Place::new();
        let conf = format!("record:{record},snapshot:/dev/null,stats_on_exit:all.json");
        place.run(&statistics(what).conf(&conf)).ok();
        let text = fs::read_to_string(place.path.join("all.json")).expect("the file");
        let libraries = text.split("\"libraries\"").nth(1).expect("the libraries");
        let words: String = libraries.split_whitespace().collect();
        let (now, peak) = (7 << 20, peak_mib << 20);
        let wanted =
            format!(r#":[{{"device":0,"library":"app","bytes":{now},"bytes_at_peak":{peak}}}],"#);
        assert!(words.starts_with(&wanted), "{words}");
        let site = format!(r#""call_sites":[{{"device":0,"library":"app","bytes":{},"#, 5 << 20);
        assert!(words.contains(&site), "{words}");
    }
}

/// Returns the file of a process of this user in this namespace.
pub fn page_of(process: u32) -> PathBuf {
    let user = fs::metadata("/proc/self").expect("/proc").uid();
    let namespace = fs::metadata("/proc/self/ns/pid").expect("/proc").ino();
    PathBuf::from(format!("/dev/shm/cachealloc-{user}-{namespace}-{process}"))
}

/// A program that runs until it gets a command to end.
pub struct Running {
    pub child: Child,
    pub file: PathBuf,
}

impl Running {
    pub fn new(run: Run) -> Running {
        let mut command = run.plain_command();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it says that it is ready");
        assert_eq!(line, "ready\n");
        let file = page_of(child.id());
        Running { child, file }
    }

    /// A thread creates the file, a moment after the first call.
    pub fn wait_for_file(&self) {
        for _ in 0..500 {
            if self.file.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{} is missing", self.file.display());
    }

    fn read(&self, count: u32) -> std::process::Output {
        let reader = compile("live_reader.c");
        let output = Command::new(reader).arg(&self.file).arg(count.to_string()).output();
        output.expect("the reader runs")
    }

    /// Ends the program, and returns its exit code as a shell reports it.
    pub fn end(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it ends");
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}

#[test]
fn another_process_reads_along() {
    if lacks("python3") {
        return;
    }
    for conf in ["", "record:all,max_entries:1000,snapshot:/dev/null", "free_mode:strict"] {
        let running = Running::new(statistics("busy 3 exit").conf(conf));
        running.wait_for_file();
        let mode = fs::metadata(&running.file).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let output = running.read(200);
        assert!(output.status.success(), "{output:?}");
        let place = Place::new();
        let file = place.path.join("live.json");
        fs::write(&file, &output.stdout).expect("target/ is writable");
        let said = check(&["--in-order"], &file);
        assert!(said.contains("200 sound reports"), "{said}");
        let path = running.file.clone();
        assert_eq!(running.end(), Some(0));
        assert!(!path.exists(), "{} stays behind", path.display());
    }
}

#[test]
fn statistics_file_is_removed_with_the_process() {
    for (end, code) in [("_exit", 0), ("exit", 0), ("fork", 0)] {
        let running = Running::new(statistics(&format!("busy 2 {end}")));
        running.wait_for_file();
        let path = running.file.clone();
        assert_eq!(running.end(), Some(code), "{end}");
        assert!(!path.exists(), "{end}: {} stays behind", path.display());
    }
    // The user's next process removes the file that a killed process leaves.
    let running = Running::new(statistics("busy 2 kill"));
    running.wait_for_file();
    let left = running.file.clone();
    assert_eq!(running.end(), Some(137));
    let next = Running::new(statistics("busy 2 exit"));
    next.wait_for_file();
    assert!(!left.exists(), "{} stays behind", left.display());
    assert_eq!(next.end(), Some(0));
}

#[test]
fn no_file_where_none_is_wanted() {
    for conf in ["live:false", "signal:off"] {
        let running = Running::new(statistics("busy 2 exit").conf(conf));
        let path = running.file.clone();
        assert!(!running.read(1).status.success());
        assert_eq!(running.end(), Some(0));
        assert!(!path.exists(), "{conf}");
    }
}

/// Whatever others do to the file, the program continues, and a signal still makes it write a
/// snapshot.
#[test]
fn damaged_statistics_file_is_harmless() {
    for spoil in ["cut", "removed", "replaced", "scribbled"] {
        let place = Place::new();
        let running = Running::new(statistics("busy 2 exit").folder(&place.path));
        running.wait_for_file();
        assert!(running.read(1).status.success());
        match spoil {
            "cut" => {
                fs::OpenOptions::new().write(true).truncate(true).open(&running.file).map(drop)
            }
            "removed" => fs::remove_file(&running.file),
            "replaced" => {
                fs::remove_file(&running.file).and_then(|()| fs::write(&running.file, [9; 100]))
            }
            _ => fs::write(&running.file, [b'x'; 200]),
        }
        .expect("it is the user's file");
        let asked = Command::new("kill").args(["-USR1", &running.child.id().to_string()]).status();
        assert!(asked.expect("kill").success());
        for _ in 0..500 {
            if !place.names().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let path = running.file.clone();
        assert_eq!(running.end(), Some(0), "{spoil}");
        let _ = fs::remove_file(path); // a replaced one is not the program's
        place.sound(1..=1, &[]);
    }
}
