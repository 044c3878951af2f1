//! Readable names: which frame names a site, how names are shortened, and which are looked up
//! later.

use std::fs;
use std::path::Path;
use std::process::Command;

use cachealloc_analysis::model::{Device, Entry, Frame, FrameId, Snapshot, StackId};
use cachealloc_analysis::names::{Names, ShortNames, label, short_name, short_path};
use cachealloc_analysis::symbols::{
    BUILD_ID_SETTING, DebugFolders, Outcome, lack_names, symbolise,
};
use cachealloc_text::{cut, plain};

use crate::made::Directory;

fn frame(snapshot: &mut Snapshot, (name, filename, line): (&str, &str, u64)) -> FrameId {
    let (name, filename) = (snapshot.texts.add(name), snapshot.texts.add(filename));
    snapshot.frames.add(Frame { name, filename, line })
}

fn stack(snapshot: &mut Snapshot, frames: &[(&str, &str, u64)]) -> StackId {
    let frames: Vec<FrameId> = frames.iter().map(|it| frame(snapshot, *it)).collect();
    snapshot.stacks.add(&frames)
}

#[track_caller]
fn site(frames: &[(&str, &str, u64)], wanted: &str, callers: &str) {
    let mut snapshot = Snapshot::default();
    let stack = stack(&mut snapshot, frames);
    let names = Names::of(&snapshot);
    let label = |frame| label(&snapshot.texts, snapshot.frames.get(frame));
    assert_eq!(names.site(&snapshot, stack).map(label), Some(wanted.to_string()));
    let found: Vec<String> = names.callers(&snapshot, stack).map(label).collect();
    assert_eq!(found.join(" < "), callers);
}

#[track_caller]
fn outermost(frames: &[(&str, &str, u64)], wanted: &str) {
    let mut snapshot = Snapshot::default();
    let stack = stack(&mut snapshot, frames);
    let names = Names::of(&snapshot);
    let label = |frame| label(&snapshot.texts, snapshot.frames.get(frame));
    assert_eq!(names.outermost(&snapshot, stack).map(label), Some(wanted.to_string()));
}

/// Neither the start of the program nor what starts a thread tells what the thread runs.
#[test]
fn outermost_frame_that_tells_the_thread() {
    const LOAD: (&str, &str, u64) = ("load", "/me/data.py", 8);
    const START: (&str, &str, u64) = ("_start", "/usr/bin/python3.11", 9);
    const THREAD: (&str, &str, u64) = ("_bootstrap", "/usr/lib/python3.11/threading.py", 1002);
    const CLONE: (&str, &str, u64) = ("clone3", "/lib/x86_64-linux-gnu/libc.so.6", 77);
    outermost(&[LOAD, ("<module>", "/me/train.py", 131), START], "<module> me/train.py:131");
    outermost(&[LOAD, ("worker", "/me/data.py", 20), THREAD, CLONE], "worker me/data.py:20");
    let native = ("execute_native_thread_routine", "/usr/lib/libstdc++.so.6", 5);
    outermost(&[("run", "/opt/libengine.so", 6), native, CLONE], "run libengine.so+0x6");
}

#[test]
fn the_frame_that_says_where() {
    const START: (&str, &str, u64) = ("_start", "/work/app", 9);
    const MAIN: (&str, &str, u64) = ("__libc_start_main", "./csu/../csu/libc-start.c", 360);
    site(
        &[("fill", "/home/me/src/a.cu", 5), ("main", "/home/me/src/a.cu", 9), MAIN, START],
        "fill src/a.cu:5",
        "main src/a.cu:9",
    );
    // The interpreter's frames are in between, with and without its sources.
    site(
        &[
            ("ffi_call", "/lib/x86_64-linux-gnu/libffi.so.8", 27405),
            ("_ctypes_callproc", "/build/Python-3.11.7/Modules/_ctypes/callproc.c", 1262),
            ("_PyObject_MakeTpCall", "/usr/bin/python3.11", 4660),
            ("alloc", "/me/a.py", 8),
            ("PyEval_EvalCode", "/lib/libfoo.so", 22),
            ("PytorchThing", "/lib/libfoo.so", 22),
            ("main", "/me/a.py", 9),
        ],
        "alloc me/a.py:8",
        "main me/a.py:9",
    );
    site(
        &[("PyEval_EvalCode", "/lib/libfoo.so", 22), ("Pytorch", "/lib/libfoo.so", 22)],
        "Pytorch libfoo.so+0x16",
        "",
    );
    // A library's frames between two of the program's frames do not count.
    site(
        &[
            ("f", "/me/a.cpp", 5),
            ("std::g", "/usr/include/c++/12/any", 7),
            ("main", "/me/a.cpp", 9),
        ],
        "f me/a.cpp:5",
        "main me/a.cpp:9",
    );
    // A call through a container of another library.
    site(
        &[
            ("cudaMalloc", "/work/app", 4660),
            ("void thrust::detail::get<int>(int)", "/usr/local/cuda/include/thrust/a.h", 3),
            ("run", "./src/run.cpp", 7),
            START,
        ],
        "run src/run.cpp:7",
        "",
    );
    // PyTorch: its C++ has no lines, and its Python is not the program's.
    site(
        &[
            ("c10::cuda::CUDACachingAllocator::malloc", "/x/torch/lib/libc10_cuda.so", 1),
            ("at::empty", "/x/site-packages/torch/lib/libtorch_cpu.so", 2),
            ("forward", "/x/site-packages/torch/nn/modules/linear.py", 114),
            ("forward", "/home/me/model.py", 52),
            ("<module>", "/home/me/train.py", 80),
        ],
        "forward me/model.py:52",
        "<module> me/train.py:80",
    );
    // CuPy: C compiled from Python, with lines of files that do not exist.
    site(
        &[
            ("__pyx_f_4cupy_7runtime_malloc(unsigned long)", "/work/cupy/api/runtime.cpp", 13_544),
            ("__Pyx_PyObject_Call(_object*)", "/work/cupy/_core/core.cpp", 66_192),
            ("ones", "/x/site-packages/cupy/_creation/basic.py", 185),
            ("main", "/home/me/solve.py", 19),
        ],
        "main me/solve.py:19",
        "",
    );
    // The program has no Python frame: the library's Python precedes machine code.
    site(
        &[
            ("??", "/x/libtorch_cpu.so", 2),
            ("forward", "/x/site-packages/torch/nn/modules/linear.py", 114),
            ("_start", "/usr/bin/python3", 9),
        ],
        "forward torch/nn/modules/linear.py:114",
        "",
    );
    // Only machine code.
    site(
        &[("cuMemAlloc_v2", "/x/libcuda.so.1", 1), ("??", "/opt/app", 4660), START],
        "app+0x1234",
        "",
    );
    site(&[START], "_start app+0x9", "");
    site(&[("f", "<stdin>", 1)], "f <stdin>:1", "");
    let empty = Snapshot::default();
    assert_eq!(Names::of(&empty).site(&empty, StackId::NONE), None);
}

#[test]
fn short_texts() {
    for (name, short) in [
        ("main", "main"),
        ("f(int, float)", "f"),
        ("void ns::f<int, std::vector<char> >(int) const", "void ns::f"),
        ("ns::(anonymous namespace)::f(int)", "ns::{anonymous}::f"),
        ("a::operator()(int) const", "a::operator()"),
        ("a::operator<<(std::ostream&)", "a::operator<<"),
        ("core::f::h0123456789abcdef", "core::f"),
        ("<module>", "<module>"),
        ("f.<locals>.g", "f.<locals>.g"),
        (
            "<a::B as c::D>::method_of_a_trait_with_a_name",
            "<a::B as c::D>::method_of_a_trait_with_a_name",
        ),
        ("", ""),
        ("((((", "(((("),
        (">>>)))]", ">>>)))]"),
    ] {
        assert_eq!(short_name(name), short, "{name}");
    }
    let long = short_name(&"größe".repeat(100)).into_owned();
    assert!(long.ends_with("...") && long.chars().count() == 83, "{long}");
    for (path, short) in [
        ("/home/me/src/a.py", "src/a.py"),
        ("a.py", "a.py"),
        ("/a.py", "/a.py"),
        ("/x/site-packages/torch/nn/a.py", "torch/nn/a.py"),
        ("/usr/lib/x86_64-linux-gnu/libfoo.so.1.2", "libfoo.so.1.2"),
        ("<frozen importlib>", "<frozen importlib>"),
        ("", ""),
    ] {
        assert_eq!(short_path(path), short, "{path}");
    }
}

const SOURCE: &str = "
__attribute__((noinline)) int leaf(volatile int *x) { return *x + 1; }
static inline __attribute__((always_inline)) int inner(volatile int *x) {
    return leaf(x) + 2;
}
static inline __attribute__((always_inline)) int middle(volatile int *x) {
    int y = inner(x);
    return y + *x;
}
__attribute__((noinline)) int outer(volatile int *x) {
    int z = middle(x);
    return z * *x;
}
int main(int argc, char **argv) { volatile int x = argc; return outer(&x); }
";

fn tool(folder: &Path, command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().expect("a tool"))
        .args(words)
        .current_dir(folder)
        .output()
        .expect("gcc and its binutils are installed: see .ci/run");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the return address of the call of `leaf`, which is in `outer`.
fn call_of_leaf(folder: &Path, program: &str) -> u64 {
    let code = tool(folder, &format!("objdump -d --no-show-raw-insn {program}"));
    let mut lines = code.lines().skip_while(|line| !line.contains("<outer>:"));
    lines.find(|line| line.contains("call") && line.contains("<leaf>")).expect("the call");
    let next = lines.next().expect("what follows it");
    u64::from_str_radix(next.split(':').next().expect("an address").trim(), 16).expect("hex")
}

/// Returns a snapshot whose only frame is at that address.
fn snapshot_of(path: &Path, address: u64) -> Snapshot {
    snapshot_named("??", path, address)
}

fn snapshot_named(name: &str, path: &Path, address: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let library = path.to_str().expect("text");
    let stack = stack(&mut snapshot, &[(name, library, address), ("main", "/x/a.c", 1)]);
    let entry = Entry {
        time_us: 0,
        address: 0,
        bytes: 1,
        stream: 0,
        stack,
        category: Default::default(),
        compile_context: Default::default(),
        user_metadata: Default::default(),
        pool: Default::default(),
        action: cachealloc_analysis::model::Action::Alloc,
        entered: 0,
    };
    snapshot.devices.push(Device { entries: [entry].into_iter().collect(), segments: Vec::new() });
    snapshot
}

fn frames(snapshot: &Snapshot) -> Vec<String> {
    let stack = snapshot.devices[0].entries.at(0).stack;
    snapshot.frames_of(stack).map(|frame| label(&snapshot.texts, frame)).collect()
}

fn outcome(snapshot: &mut Snapshot, folders: &DebugFolders) -> Outcome {
    assert!(lack_names(snapshot, folders));
    let outcomes = symbolise(snapshot, folders, |done, all| assert!(done < all));
    outcomes.into_values().next().expect("one library")
}

#[test]
fn names_are_found_late() {
    let directory = Directory::new("late");
    let folder = &directory.0;
    fs::write(folder.join("late.c"), SOURCE).expect("a file");
    tool(folder, "gcc -g -O2 -Wl,--build-id=sha1 -o whole late.c");
    tool(folder, "objcopy --only-keep-debug whole whole.debug");
    tool(folder, "cp whole stripped");
    tool(folder, "strip stripped");
    let path = |name: &str| folder.join(name);
    let address = call_of_leaf(folder, "whole");
    let nowhere = DebugFolders::default();
    let notes = tool(folder, "readelf -n whole");
    let build_id = notes.split("Build ID: ").nth(1).expect("it has one");
    let build_id = build_id.split_whitespace().next().expect("it has one");
    let of_build = |path: &Path, build_id: &str| {
        let mut snapshot = snapshot_of(path, address);
        let setting = format!("{BUILD_ID_SETTING}{}", path.display());
        snapshot.settings.ours.push((setting, build_id.to_string()));
        snapshot
    };

    // addr2line of the same toolchain is the reference: functions and lines, innermost first.
    let said = tool(folder, &format!("addr2line -f -i -e whole {:#x}", address - 1));
    let said: Vec<&str> = said.lines().collect();
    let judged: Vec<String> = said
        .chunks(2)
        .map(|it| {
            let place = it[1].split(" (").next().expect("a place");
            let (file, line) = place.rsplit_once(':').expect("a line");
            format!("{} {}:{line}", it[0], short_path(file))
        })
        .chain(["main x/a.c:1".to_string()])
        .collect();
    assert!(judged[0].starts_with("inner ") && judged.len() == 4, "{judged:?}");

    let mut snapshot = of_build(&path("whole"), build_id);
    assert_eq!(outcome(&mut snapshot, &nowhere), Outcome::Named(1));
    assert_eq!(frames(&snapshot), judged);
    assert!(!lack_names(&snapshot, &nowhere));

    // The file is stripped, and no other is available: the frame stays as it was.
    let mut snapshot = of_build(&path("stripped"), build_id);
    assert_eq!(outcome(&mut snapshot, &nowhere), Outcome::Named(0));
    assert_eq!(frames(&snapshot)[0], format!("stripped+{address:#x}"));

    // The debug information is found by build-id, where distributions put it, and by debuginfod.
    let by_id = folder.join("debug").join(&build_id[..2]);
    let fetched = folder.join("cache").join(build_id);
    fs::create_dir_all(&by_id).expect("a folder");
    fs::create_dir_all(&fetched).expect("a folder");
    fs::copy(path("whole.debug"), by_id.join(format!("{}.debug", &build_id[2..]))).expect("a copy");
    fs::copy(path("whole.debug"), fetched.join("debuginfo")).expect("a copy");
    let of = |build_id, debuginfod| DebugFolders { build_id, debuginfod };
    let folders = [of(vec![path("debug")], vec![]), of(vec![], vec![path("x"), path("cache")])];
    for folders in &folders {
        let mut snapshot = of_build(&path("stripped"), build_id);
        assert_eq!(outcome(&mut snapshot, folders), Outcome::Named(1));
        assert_eq!(frames(&snapshot), judged);
        // Another machine has only the debug information.
        let gone = path("gone");
        let mut snapshot = of_build(&gone, build_id);
        assert_eq!(outcome(&mut snapshot.clone(), &nowhere), Outcome::Missing);
        assert_eq!(outcome(&mut snapshot, folders), Outcome::Named(1));
        assert_eq!(frames(&snapshot), judged);
        // The frame has a name from the symbol table, and no line.
        let mut snapshot = snapshot_named("outer", &gone, address);
        assert!(!lack_names(&snapshot, folders), "nobody knows which build it is");
        let setting = format!("{BUILD_ID_SETTING}{}", gone.display());
        snapshot.settings.ours.push((setting, build_id.to_string()));
        assert!(!lack_names(&snapshot, &nowhere), "nothing would be found");
        assert_eq!(outcome(&mut snapshot, folders), Outcome::Named(1));
        assert_eq!(frames(&snapshot), judged);
    }

    // The current folder is not searched.
    assert!(!lack_names(&snapshot_of(Path::new("whole"), address), &nowhere));

    // The path now has another build.
    let mut snapshot = of_build(&path("whole"), &"00".repeat(20));
    assert_eq!(outcome(&mut snapshot, &nowhere), Outcome::OtherBuild);

    // The file may be of any build: PyTorch wrote the snapshot, or a machine whose C library is
    // another.
    let mut snapshot = snapshot_of(&path("whole"), address);
    assert_eq!(outcome(&mut snapshot, &nowhere), Outcome::UnknownBuild);
    assert_eq!(frames(&snapshot)[0], format!("whole+{address:#x}"));

    // Files that are no libraries.
    fs::write(path("text"), "hello").expect("a file");
    for name in ["text", "."] {
        let mut snapshot = of_build(&path(name), build_id);
        let found = outcome(&mut snapshot, &nowhere);
        assert!(matches!(found, Outcome::OtherBuild | Outcome::Missing), "{found:?}");
    }
    let mut snapshot = of_build(Path::new("/dev/zero"), build_id);
    assert_eq!(outcome(&mut snapshot, &nowhere), Outcome::Missing);
}

#[test]
fn names_of_any_length_have_a_label() {
    for name in ["n", "(", "<", "a::b(", "n<"] {
        for file in ["f.py", "/", "/site-packages/x", "<", "lib.so"] {
            let mut snapshot = Snapshot::default();
            let (name, file) = (name.repeat(100_000), file.repeat(100_000));
            let (name, filename) = (snapshot.texts.add(&name), snapshot.texts.add(&file));
            let frame = snapshot.frames.add(Frame { name, filename, line: 1 });
            let label = label(&snapshot.texts, snapshot.frames.get(frame));
            assert!(label.chars().count() < 1000, "{label:.99}");
        }
    }
}

#[test]
fn terminal_escapes_are_not_printed() {
    assert_eq!(plain("a\u{1b}[2J\r\n\u{9b}31m\u{202e}b"), "a?[2J???31m?b");
    assert_eq!(plain("a\u{200b}b\u{feff}\u{e0041}\u{2060}\u{ad}c"), "a?b????c");
    assert_eq!(plain("\u{e4}\u{4e16}\u{1f600} <>&"), "\u{e4}\u{4e16}\u{1f600} <>&");
    assert_eq!(cut("\u{e4}\u{e4}\u{e4}", 2), "\u{e4}\u{e4}...");
    let harmless = cachealloc_text::escaped("[\"\u{1b}\u{9b}\u{7f}\",\n1]");
    assert_eq!(harmless, "[\"\\u001b\\u009b\\u007f\",\n1]");
}

fn told_apart(names: &[&str]) -> Vec<String> {
    let all = ShortNames::of(names.iter().copied());
    names.iter().map(|name| all.short(name).into_owned()).collect()
}

#[test]
fn template_instances_are_distinguished() {
    let long = "x".repeat(60);
    assert_eq!(
        told_apart(&[
            "void fill<float, 4>(float*, unsigned long)",
            "void fill<double, 4>(double*, unsigned long)"
        ]),
        ["void fill<float, 4>", "void fill<double, 4>"]
    );
    let [one, other] =
        ["float", "double"].map(|kind| format!("sort<{long}, less<{kind}>, {long}>(int (*)(int))"));
    assert_eq!(told_apart(&[&one, &other]), ["sort<...float...>", "sort<...double...>"]);
    // No other function has the name, so it stays short.
    assert_eq!(told_apart(&["void fill<float, 4>(float*, unsigned long)"]), ["void fill"]);
    assert_eq!(
        told_apart(&["main", "f(int)", "f(long)", "<module>"]),
        ["main", "f", "f", "<module>"]
    );
    let plain = ["operator<<", "a<b>::operator()(int) const", "a<c>::operator()(int) const"];
    assert_eq!(told_apart(&plain)[1..], ["a<b>::operator()", "a<c>::operator()"]);
}

#[test]
fn any_name_is_distinguished_in_one_line() {
    for names in [
        ["f<\u{e9}\u{e9}>", "f<\u{e9}\u{ea}>"].map(|it| it.repeat(40)),
        ["f<".repeat(500), "f<".repeat(501)],
        ["f<a>>>>>>".repeat(20), "f<b>>>>>>".repeat(20)],
        ["f<((((".repeat(20), "f<)))".repeat(30)],
        ["f<>".into(), "f<->".into()],
    ] {
        told_apart(&[&names[0], &names[1]])
            .iter()
            .for_each(|it| assert!(it.chars().count() < 160, "{it}"));
    }
}
