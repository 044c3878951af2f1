//! Stacks through CPython, ctypes and libffi, with callbacks from C into Python and back.

use std::process::Command;

#[path = "../../../tests/skip.rs"]
mod skip;

use skip::skipped;

const PROGRAM: &str = r#"
import ctypes, sys, threading
library = ctypes.CDLL(sys.argv[1])
library.fallbacks.restype = ctypes.c_uint64
libc = ctypes.CDLL(None)

def check():
    frames = library.agreed_frames()
    assert frames > 5, frames
    return frames

class Thing:
    def __init__(self): check()
    def __lt__(self, other): check(); return True
    def __getattr__(self, name): return check()

ORDER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))

def order(a, b):
    check()
    return a[0] - b[0]

def generator(depth):
    if depth: yield from generator(depth - 1)
    yield check()

def deep(depth):
    return check() if depth == 0 else max(map(deep, [depth - 1]))

def everything():
    check()
    sorted([Thing(), Thing(), Thing()])
    Thing().missing
    numbers = (ctypes.c_int * 5)(5, 3, 1, 4, 2)
    libc.qsort(numbers, 5, 4, ORDER(order))
    assert list(numbers) == [1, 2, 3, 4, 5]
    list(generator(10))
    assert deep(40) > deep(10)
    eval("check()")

everything()
threads = [threading.Thread(target=everything) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("agreed; by libgcc:", library.fallbacks())
"#;

#[test]
fn through_the_interpreter() {
    let tests = std::env::current_exe().unwrap();
    let library = tests.ancestors().nth(2).unwrap().join("examples/libpython_stacks.so");
    if !library.exists() {
        return skipped("the example is not built (it is by `cargo test` without a filter)");
    }
    let run = Command::new("python3").arg("-c").arg(PROGRAM).arg(&library).output();
    let Ok(run) = run else {
        return skipped("there is no python3");
    };
    let output = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && output.starts_with("agreed"), "{output}{errors}");
    eprintln!("{output}");
}
