//! `/dev/shm`, which contains the history and the statistics of a process: full, not writable,
//! missing, or with files that another user has prepared. The program continues, its own snapshot
//! is complete, and one line reports what is missing.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use cachealloc_tests::{Run, compile, skipped};

use crate::record::recover::{recovered, spawn};
use crate::record::snapshots::Place;
use crate::record::statistics::page_of;

/// No call of the program fails for lack of space, and its own snapshot is complete.
#[test]
fn a_full_file_system_is_one_line() {
    for size in ["20k", "300k", "1m"] {
        let place = Place::new();
        let random = env!("CARGO_BIN_EXE_random");
        let script = format!(
            "mount -t tmpfs -o size={size} none /dev/shm && {random} 3 20000 2 own; ls -s /dev/shm"
        );
        let run = Run::program("unshare").args("--mount sh -c").arg(script);
        // On a small device the threads sometimes run out of memory, which would write snapshots,
        // too.
        let ran = place.run(&run.env("SIM_MEMORY_MB", "8192").conf("record:all"));
        if ran.stderr.contains("unshare failed") {
            return skipped("only root makes namespaces");
        }
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let lines = ran.said();
        let lost = lines.iter().filter(|line| line.contains("history will not survive a crash"));
        assert_eq!(lost.count(), 1, "{size}: {lines:?}");
        assert!(!ran.stdout.contains("cachealloc-history"), "{size}: {ran:?}");
        place.sound(1..=1, &["--from-start"]);
    }
}

#[test]
fn a_limit_for_files_is_one_line() {
    let place = Place::new();
    let script = format!("ulimit -f 4000; {} return", compile("triggers.c").display());
    let ran = place.run(&Run::program("sh").arg("-c").arg(script).conf("record:all"));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let lines = ran.said();
    let wanted = "the file would exceed the limit of this process (ulimit -f)";
    assert_eq!(lines.iter().filter(|line| line.contains(wanted)).count(), 1, "{lines:?}");
    place.sound(1..=1, &["--from-start"]);
}

/// The names are predictable, and any user with write access to the folder may take them first.
#[test]
fn prepared_names_are_left_alone() {
    for kind in ["file", "link", "dangling", "folder", "fifo"] {
        let (place, other) = (Place::new(), Place::new());
        let script = format!("read line; exec {} now", compile("killed.c").display());
        let run = Run::program("sh").arg("-c").arg(script).conf("record:all,log:quiet");
        let mut child = spawn(&place, &run);
        let prepared = [history_of(child.id()), page_of(child.id())];
        let victim = other.path.join("victim");
        fs::write(&victim, "precious").expect("a file");
        for path in &prepared {
            prepare(kind, path, &victim);
        }
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        child.wait().expect("a child");
        let target = || (fs::read(&victim).expect("a file"), other.names());
        assert_eq!(target(), (b"precious".to_vec(), vec!["victim".to_string()]), "{kind}");
        let about = fs::symlink_metadata(&prepared[0]).expect("it is still there");
        assert!(kind != "file" || about.len() == 8, "{kind}: {about:?}");
        for path in prepared {
            // A page of the same user is taken for a leftover.
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        }
        recovered(&place, child.id(), &["--from-start"]);
    }
}

fn prepare(kind: &str, path: &Path, victim: &Path) {
    match kind {
        "file" => fs::write(path, "precious").expect("a file"),
        "link" => symlink(victim, path).expect("a link"),
        "dangling" => symlink(victim.with_file_name("nothing"), path).expect("a link"),
        "folder" => fs::create_dir(path).expect("a folder"),
        _ => {
            let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
            assert!(made.success());
        }
    }
}

/// Returns the file name of its history, once it has one.
fn history_of(process: u32) -> PathBuf {
    let page = page_of(process).display().to_string();
    PathBuf::from(format!(
        "{}-{}",
        page.replace("cachealloc-", "cachealloc-history-"),
        start_of(process)
    ))
}

fn start_of(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let (_, words) = stat.rsplit_once(") ").expect("a name");
    words.split(' ').nth(19).and_then(|word| word.parse().ok()).expect("a start")
}

/// The folder is not writable, has no space for a file, is missing, or is of another kind. Whether
/// it is executable makes no difference.
#[test]
fn a_folder_that_is_of_no_use_is_one_line() {
    for (made, line) in [
        ("mount -t tmpfs -o ro none /dev/shm", "Read-only file system"),
        ("mount -t tmpfs -o nr_inodes=1 none /dev/shm", "No space left on device"),
        ("mount --bind /proc /dev/shm", "it is not a file system in memory"),
        ("mkdir dev && cp -a /dev/null /dev/urandom dev && mount --bind dev /dev", "No such file"),
        ("mount -t tmpfs -o noexec none /dev/shm", ""),
    ] {
        let place = Place::new();
        let script = format!("{made} && exec {} return", compile("triggers.c").display());
        let run = Run::program("unshare").args("--mount sh -c").arg(script);
        let ran = place.run(&run.conf("record:all"));
        if ran.stderr.contains("unshare failed") {
            return skipped("only root makes namespaces");
        }
        assert_eq!(ran.code, Some(3), "{made}: {ran:?}");
        let lines = ran.said();
        let lost = lines.iter().filter(|line| line.contains("history will not survive a crash"));
        let lost: Vec<_> = lost.collect();
        assert_eq!(lost.len(), usize::from(!line.is_empty()), "{made}: {lines:?}");
        assert!(lost.iter().all(|it| it.contains(line)), "{made}: {lines:?}");
        let _ = fs::remove_dir_all(place.path.join("dev"));
        place.sound(1..=1, &["--from-start"]);
    }
}

/// The snapshot at the end cannot be written. The recorded history remains, and the message gives
/// the command that makes a snapshot of it.
#[test]
fn a_process_may_have_no_more_files() {
    for limit in ["--nofile=0:0", "--fsize=0:0"] {
        let place = Place::new();
        let mut child = spawn(&place, &Run::c("killed.c").arg("waits").conf("record:all"));
        let mut ready = [0; 6];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
        let id = child.id();
        let limited = Command::new("prlimit").args([limit, "--pid", &id.to_string()]).status();
        assert!(limited.expect("prlimit, of util-linux").success());
        drop(child.stdin.take());
        assert!(child.wait().expect("a child").success(), "{limit}");
        recovered(&place, id, &["--from-start"]);
    }
}
