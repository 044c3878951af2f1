//! Programs in containers, and programs that call `exec`: the command asks the right process, and
//! what it prints about the others is true. Only root can make namespaces and change users; other
//! users skip these tests.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cachealloc_tests::{Run, compile, lacks, library};

use super::cachealloc;
use super::live::failed;
use crate::record::statistics::{Running, page_of};

/// A busy program as the first process of a new namespace.
struct Contained {
    outer: Child,
    /// The program's number in the namespace of the test.
    process: u32,
}

impl Contained {
    /// Returns `None` if the user may not make namespaces.
    fn new(own_folder: bool) -> Option<Contained> {
        let folder = if own_folder { "mount -t tmpfs none /dev/shm && " } else { "" };
        let script = format!("{folder}exec {} busy 2 exit", compile("statistics.c").display());
        let run = Run::program("unshare").args("--pid --mount --fork --kill-child --mount-proc");
        let mut command = run.args("sh -c").arg(script).plain_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut outer = command.spawn().expect("it starts");
        let mut ready = [0; 6];
        let stdout = outer.stdout.as_mut().expect("a pipe");
        if std::io::Read::read_exact(stdout, &mut ready).is_err() {
            let _ = outer.wait();
            return None;
        }
        let id = outer.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("/proc");
        let process = children.trim().parse().expect("one child");
        Some(Contained { outer, process })
    }

    #[track_caller]
    fn answers(&self) {
        let begun = Instant::now();
        loop {
            let ran = cachealloc(&format!("stats {}", self.process)).output();
            if ran.code == Some(0) {
                let begin = format!("process {}: /", self.process);
                assert!(ran.stdout.starts_with(&begin), "{ran:?}");
                assert!(ran.stdout.contains("device 0"), "{ran:?}");
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{ran:?}");
            // The file is made by a thread, a moment after the first call.
            std::thread::sleep(Duration::from_millis(20));
        }
        let ran = cachealloc(&format!("top {}", self.process)).output().ok();
        assert!(ran.stdout.contains("busy 2 exit"), "{ran:?}");
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        drop(self.outer.stdin.take());
        for _ in 0..200 {
            if !matches!(self.outer.try_wait(), Ok(None)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

/// The process answers to the number that it has outside, whether or not it shares `/dev/shm`.
#[test]
fn a_contained_process_answers() {
    for own_folder in [false, true] {
        let Some(contained) = Contained::new(own_folder) else { return };
        contained.answers();
        // The process has no place in a table of this namespace, where its number is a different
        // one.
        let table = cachealloc("top").output().ok().stdout;
        assert!(!table.lines().any(|row| row.trim_start().starts_with("1 ")), "{table}");
    }
}

/// Two containers with one `/dev/shm`, and one that was killed: each has a separate file.
#[test]
fn killed_container_blocks_no_process() {
    let Some(first) = Contained::new(false) else { return };
    first.answers();
    // While this is open, no other namespace gets its number.
    let _namespace = fs::File::open(format!("/proc/{}/ns/pid", first.process)).expect("/proc");
    let Some(second) = Contained::new(false) else { return };
    second.answers();
    first.answers();
    let namespace_of = |contained: &Contained| {
        let file = fs::metadata(format!("/proc/{}/ns/pid", contained.process)).expect("/proc");
        std::os::unix::fs::MetadataExt::ino(&file)
    };
    let mut namespaces = vec![namespace_of(&first), namespace_of(&second)];
    super::live::kill("-KILL", first.process);
    drop(first);
    let Some(third) = Contained::new(false) else { return };
    third.answers();
    second.answers();
    namespaces.push(namespace_of(&third));
    drop((second, third));
    // Here nothing can be known of those that were killed.
    for entry in fs::read_dir("/dev/shm").expect("/dev/shm").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if namespaces.iter().any(|namespace| name.ends_with(&format!("-{namespace}-1"))) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Another user can take a well-known name, but cannot obstruct any process with it.
#[test]
fn taken_name_is_replaced() {
    // The program's number is known before it begins: a shell becomes it.
    let script = format!(
        "f=/dev/shm/cachealloc-$(id -u)-$(stat -Lc %i /proc/self/ns/pid)-$$; \
         mkdir $f; exec env LD_PRELOAD={} {} busy 2 exit",
        library().display(),
        compile("statistics.c").display()
    );
    let running = Running::new(Run::program("sh").preload(&[]).arg("-c").arg(script));
    let process = running.child.id();
    let begun = Instant::now();
    while cachealloc(&format!("stats {process}")).output().code != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it has no file");
        std::thread::sleep(Duration::from_millis(20));
    }
    let table = cachealloc("top").output().ok().stdout;
    assert!(table.contains(&format!("{process} ")), "{table}");
    assert_eq!(running.end(), Some(0));
    fs::remove_dir(page_of(process)).expect("the one that was in the way");
    let left = fs::read_dir("/dev/shm").expect("/dev/shm").flatten();
    let mut left = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(left.find(|name| name.contains(&format!("-{process}."))), None);
}

/// Uses CUDA, then does something else.
const USES: &str = r#"
import ctypes, os, sys, time
cuda = ctypes.CDLL('libcuda.so.1')
pointer, context = ctypes.c_uint64(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), 1 << 20) == 0
user, space = os.geteuid(), os.stat('/proc/self/ns/pid').st_ino
page = f'/dev/shm/cachealloc-{user}-{space}-{os.getpid()}'
while not os.path.exists(page): time.sleep(0.01)
time.sleep(0.1)
def then():
    if sys.argv[1] == 'exec':
        os.execvp('sh', ['sh', '-c', 'echo ready; read line'])
    os.setuid(65534)
    print('ready', flush=True)
    sys.stdin.read()
then()
"#;

fn uses(then: &str) -> Running {
    Running::new(Run::program("python3").arg("-c").arg(USES).arg(then))
}

/// No command waits for the program that the process was before `exec`.
#[test]
fn a_program_becomes_another() {
    if lacks("python3") {
        return;
    }
    // Each command removes such pages, so one of another test may have been first.
    assert!((0..10).any(|_| command_names_the_new_program()));
    // The same holds for a table of all processes.
    let running = uses("exec");
    is_not_awaited(running.child.id());
    assert!(!running.file.exists());
    running.end();
}

/// Panics if the table of all processes asks this one, which would not respond.
#[track_caller]
fn is_not_awaited(process: u32) {
    let table = cachealloc("top --once").output().ok().stdout;
    let process = process.to_string();
    assert!(!table.split_whitespace().any(|word| word == process), "{table}");
}

/// Returns `false` if a command of another test has removed the page before.
fn command_names_the_new_program() -> bool {
    let running = uses("exec");
    let process = running.child.id();
    let ran = cachealloc(&format!("stats {process}")).output();
    let unused = format!(
        "process {process} runs under cachealloc and has not used CUDA yet; try again once it has allocated \
         GPU memory"
    );
    let is_first = !ran.stderr.contains(&unused);
    if is_first {
        let why = "was replaced by another program (exec) after it used CUDA; try again once that program uses CUDA";
        assert!(
            ran.stderr.starts_with(&format!("cachealloc: process {process} (sh -c")),
            "{ran:?}"
        );
        assert!(ran.stderr.ends_with(&format!("{why}\n")), "{ran:?}");
    }
    assert!(!running.file.exists(), "the page was not removed");
    failed(&cachealloc(&format!("stats {process}")).output(), &unused);
    assert_eq!(running.end(), Some(1), "sh has read nothing");
    is_first
}

#[test]
fn a_program_changes_its_user() {
    if !nobody_can_be_become() {
        return;
    }
    let running = uses("setuid");
    let process = running.child.id();
    let ran = cachealloc(&format!("top {process}")).output();
    let why = format!(
        "process {process} runs as user 65534, which cannot write its statistics file, owned by user 0; \
         to get them at its exit, start it with: cachealloc run --stats-on-exit FILE"
    );
    failed(&ran, &why);
    is_not_awaited(process);
    let path = running.file.clone();
    running.end();
    let _ = fs::remove_file(path);
}

fn nobody_can_be_become() -> bool {
    let ran = Command::new("python3").args(["-c", "import os; os.setuid(65534)"]).output();
    ran.is_ok_and(|ran| ran.status.success())
}
