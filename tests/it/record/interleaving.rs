//! Python frames appear where the interpreter ran them, even if no name identifies the native frame
//! of the interpreter. Names are read only from the file that is loaded: not if the file was
//! removed, nor if the program was run by naming the dynamic loader, which the kernel then takes
//! for the program.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cachealloc_tests::Run;

use crate::record::recover::{ended, recovered};
use crate::record::snapshots::Place;

#[path = "../../interpreters.rs"]
mod found;
#[path = "../../skip.rs"]
mod skip;

const PROGRAM: &str = r#"
import ctypes, glob, os, signal, sys, time
if os.path.exists("libpython.so"):
    os.remove("libpython.so")
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
def allocate():
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(5 << 20)) == 0
def through(_):
    allocate()
def from_map():
    list(map(through, [1]))
class Missing:
    def __getattr__(self, name):
        allocate()
        return list
def from_attribute():
    Missing().anything
def from_c():
    ctypes.CFUNCTYPE(None)(allocate)()
class Last:
    def __del__(self):
        allocate()
def leaves():
    last = Last()
def from_end():
    ctypes.CFUNCTYPE(None)(leaves)()
from_map()
from_attribute()
from_end()
from_c()
def written():
    [file] = glob.glob(f"/dev/shm/cachealloc-history-*-{os.getpid()}-*")
    file, at, texts = os.open(file, os.O_RDONLY), 0, b""
    while True:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            os.close(file)
            return texts
        at = os.lseek(file, start, os.SEEK_HOLE)
        texts += os.pread(file, at - start, start)
if "die" in sys.argv:
    names = b"from_map", b"through", b"from_attribute", b"from_end", b"__del__", b"__getattr__", b"from_c", b"allocate"
    while not all(map(written().__contains__, names)):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
"#;

/// Native frames between Python frames appear as one `-`, except those of libffi, through which C
/// calls Python. When the finalizer runs, `leaves` has left its frame, and its evaluation
/// continues.
const EXPECTED: &str = "- allocate through - from_map <module> -
- allocate Missing.__getattr__ - from_attribute <module> -
- allocate Last.__del__ - libffi - from_end <module> -
- allocate - libffi - from_c <module> -
";

const SHOW: &str = r#"
import glob, itertools, os, pickle
def shown(frame):
    file = os.path.basename(frame["filename"])
    return frame["name"] if file == "program.py" else "libffi" if file.startswith("libffi") else "-"
[file] = glob.glob("*.pickle")
with open(file, "rb") as file:
    entries = pickle.load(file)["device_traces"][0]
for entry in entries:
    if entry["action"] == "alloc":
        frames = entry["frames"]
        called = next(at for at, f in enumerate(frames) if f["filename"].endswith("program.py"))
        names = ["-"] + [shown(f) for f in frames[called:]]
        print(*(name for name, _ in itertools.groupby(names)))
"#;

/// Runs the program, with these words, in each interpreter that leaves marks on the native stack.
/// No name for the interpreter's code can be found.
fn in_each_interpreter(words: &str, check: impl Fn(&Place, &Run)) {
    let mut count = 0;
    for found::Interpreter { executable, version } in found::interpreters() {
        let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
        if minor.is_none_or(|minor| minor < 12) {
            continue;
        }
        let place = Place::new();
        fs::write(place.path.join("program.py"), PROGRAM).expect("a file");
        let run = match (library(&executable), loader(&executable)) {
            (Some(library), _) => {
                // The program removes the copy when it is loaded.
                let copy = place.path.join("libpython.so");
                fs::copy(library, &copy).expect("a copy");
                Run::program(executable).preload(&[cachealloc_tests::library(), copy])
            }
            (None, Some(loader)) => Run::program(loader).arg(executable),
            // A script that names the loader.
            (None, None) => Run::program(executable),
        };
        check(&place, &run.args(&format!("-B program.py {words}")).conf("record:all"));
        let shown = Command::new("python3").args(["-c", SHOW]).current_dir(&place.path).output();
        let shown = shown.expect("python3").stdout;
        assert_eq!(String::from_utf8_lossy(&shown), EXPECTED, "{version}");
        count += 1;
    }
    if count == 0 {
        skip::skipped("there is no Python 3.12 or later");
    }
}

/// Returns the library that contains the interpreter's code, unless the program contains it.
fn library(interpreter: &Path) -> Option<PathBuf> {
    let maps =
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if '/libpython3.' in line})";
    let maps = Command::new(interpreter).args(["-c", maps]).output().expect("an interpreter");
    let library = String::from_utf8(maps.stdout).expect("a name").trim().to_owned();
    (!library.is_empty()).then(|| library.into())
}

/// Returns the dynamic loader that a program names.
fn loader(program: &Path) -> Option<PathBuf> {
    const BEGIN: &[u8] = b"/ld-linux";
    let program = fs::read(program).expect("an interpreter");
    let at = program.windows(BEGIN.len()).position(|bytes| bytes == BEGIN)?;
    let start = program[..at].iter().rposition(|&byte| byte == 0)? + 1;
    let end = at + program[at..].iter().position(|&byte| byte == 0)?;
    Some(OsStr::from_bytes(&program[start..end]).into())
}

#[test]
fn frames_are_where_they_ran() {
    in_each_interpreter("", |place, run| {
        place.run(run).ok();
    });
}

/// The names come from what the process has left.
#[test]
fn frames_of_a_dead_process_are_where_they_ran() {
    in_each_interpreter("die", |place, run| {
        let process = ended(place, run);
        fs::remove_file(place.path.join("program.py")).expect("the program");
        recovered(place, process, &["--from-start"]);
    });
}
