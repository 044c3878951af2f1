//! `cachealloc top-sites`, `diff` and `convert` find and name what was planted, whatever wrote the
//! snapshot, and reject a file that is no snapshot with one sentence.

use std::fs;
use std::process::Command;

use cachealloc_tests::{Ran, Run, command, lacks, root, source};

use crate::command::live::failed;
use crate::command::{cachealloc, masked};
use crate::record::snapshots::Place;

/// Two snapshots of `tests/c/record/planted.c`: `2.pickle` with two leaks, `5.pickle` with five and
/// a request that is refused.
pub fn planted() -> Place {
    let place = Place::new();
    for arguments in ["2", "5 refused"] {
        let run = arguments.split(' ').fold(Run::c("planted.c"), |run, word| run.arg(word));
        let name = &arguments[..1];
        let ran = place.run(&run.conf(&format!("record:all,log:quiet,snapshot:{name}.pickle")));
        ran.ok();
    }
    place
}

pub fn run(place: &Place, arguments: &str) -> Ran {
    cachealloc(arguments).folder(&place.path).output()
}

pub fn said(place: &Place, arguments: &str) -> String {
    let ran = run(place, arguments).ok();
    assert_eq!(ran.stderr, "", "{arguments}");
    ran.stdout
}

/// Returns the line of the source that ends in this comment.
pub fn line_of(comment: &str) -> usize {
    let source = fs::read_to_string(source("planted.c")).expect("the source");
    let found = source.lines().position(|line| line.ends_with(&format!("// {comment}")));
    found.expect("the comment") + 1
}

/// Shows host memory that devices reach if a flag asks for it; otherwise only mentions it.
#[test]
fn holders_of_pinned_memory() {
    let place = Place::new();
    place.run(&Run::c("pinned.c").arg("ends").conf("record:all,log:quiet,snapshot:p.pickle")).ok();
    let told = "host: 6.06 MiB that devices can access; list its holders with --device host\n";
    assert!(said(&place, "top-sites p.pickle").contains(told));
    let text = said(&place, "top-sites p.pickle --device host");
    assert!(text.starts_with("host: 6.06 MiB at the peak") && !text.contains(told), "{text}");
    assert!(text.contains("main record/pinned.c:"), "{text}");
    let json = said(&place, "top-sites p.pickle --device host --json");
    assert!(json.contains("\"device\": -1") || json.contains("\"device\":-1"), "{json}");
    let refused = run(&place, "top-sites p.pickle --device hosts");
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("expected the number of a device, host or graphs"),
        "{refused:?}"
    );
}

#[test]
fn largest_holders() {
    let place = planted();
    // How long they live depends on the machine.
    let text = masked(&said(&place, "top-sites 2.pickle")).replace("# < # us", "# us");
    let text = text.replace("# us", "# ms");
    assert_eq!(
        text,
        "\
device #: # MiB at the peak (after # ms, entry # of #), # MiB at the end

held at the peak, by call site:

 BYTES SHARE BLOCKS LIFE LIBRARY WHERE
# MiB # % # ms app get record/planted.c:# < load_weights record/planted.c:# < main record/planted.c:#
# MiB # % # - app get record/planted.c:# < leak record/planted.c:# < main record/planted.c:#
# KiB # % # ms app get record/planted.c:# < burst record/planted.c:# < main record/planted.c:#
"
    );
    let text = said(&place, "top-sites 2.pickle --at end");
    let (get, leak) = (line_of("asks"), line_of("leak"));
    let wanted = format!(
        "6.00 MiB  100.00 %       2     -  app      get record/planted.c:{get} < leak record/planted.c:{leak}"
    );
    assert!(text.contains(&wanted), "{text}");
    assert!(text.contains(" 38.1 MiB at the peak"), "{text}");
    assert_eq!(text.matches("planted.c").count(), 3, "nothing else is held: {text}");
}

#[test]
fn by_other_measures() {
    let place = planted();
    let first = |arguments: &str| {
        let text = said(&place, &format!("top-sites 2.pickle -n 1 {arguments}"));
        let mut lines = text.lines().skip_while(|line| !line.contains("WHERE"));
        lines.nth(1).expect("a site").to_string()
    };
    let temporary = format!("burst record/planted.c:{}", line_of("temporary"));
    let row = first("--by temporary");
    assert!(row.contains(&temporary) && row.trim_start().starts_with("100  "), "{row}");
    let row = first("--by count");
    assert!(row.contains(&temporary) && row.trim_start().starts_with("100  "), "{row}");
    let weights = format!("load_weights record/planted.c:{}", line_of("weights"));
    let row = first("--by allocated");
    assert!(row.contains(&weights) && row.trim_start().starts_with("32.0 MiB  "), "{row}");
    // One line, and one function, allocates everything.
    for unit in ["line", "function"] {
        let row = first(&format!("--by count --group {unit}"));
        assert!(row.trim_start().starts_with("106  100.00 %"), "{row}");
    }
    // One thread does.
    let row = first("--by count --group thread");
    assert!(row.trim_start().starts_with("106  100.00 %") && row.contains(" main "), "{row}");
    let text = said(&place, "top-sites 2.pickle --group thread");
    assert!(text.contains("held at the peak, by function that the thread runs:\n"), "{text}");
    let text = said(&place, "top-sites 2.pickle -n 1 --by allocated");
    assert!(text.ends_with("(2 other sites)\n"), "{text}");
    let text = said(&place, "top-sites 2.pickle -n 1 --at #3");
    assert!(text.contains("held at that time, by call site"), "{text}");
    assert!(said(&place, "top-sites 2.pickle --at 0s").contains("held at that time"));
}

/// Returns what a command prints to a terminal of this width.
fn on_terminal(place: &Place, columns: u16, arguments: &str) -> String {
    const SCRIPT: &str = "import fcntl, os, pty, struct, sys, termios
child, terminal = pty.fork()
if not child:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
try:
    while part := os.read(terminal, 65536):
        os.write(1, part)
except OSError:
    pass";
    let output = Command::new("python3")
        .args(["-c", SCRIPT, &columns.to_string()])
        .arg(command())
        .args(arguments.split(' '))
        .current_dir(&place.path)
        .env("NO_COLOR", "1")
        .output()
        .expect("python3 runs");
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

/// Columns are dropped, the least important first, and what matters most is whole.
#[test]
fn narrow_terminals_show_what_matters() {
    if lacks("python3") {
        return;
    }
    let place = planted();
    let text = on_terminal(&place, 40, "top-sites 2.pickle");
    for line in ["   BYTES  WHERE", "32.0 MiB  get < load_weights < main"] {
        assert!(text.contains(&format!("\n{line}\n")), "{text}");
    }
    assert!(text.ends_with("\nno room: LIFE, SHARE, LIBRARY, BLOCKS\n"), "{text}");
    let text = on_terminal(&place, 80, "fit 5.pickle");
    assert!(text.contains("  garbage_collection_threshold:0.8\n"), "{text}");
    assert!(text.contains("\nno room: DRIVER CALLS, FRAGMENTED\n"), "{text}");
    // Sentences are wrapped between their words.
    let text = on_terminal(&place, 40, "findings 5.pickle");
    assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    assert!(text.starts_with("Out of memory, "), "{text}");
}

#[test]
fn when_a_request_was_refused() {
    let place = planted();
    let text = said(&place, "top-sites 5.pickle --at oom");
    assert!(text.contains("held when the last allocation failed, by call site"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("planted.c")).collect();
    assert!(rows[0].contains("load_weights") && rows[1].contains("15.0 MiB"), "{text}");
    let why = "no allocation failed in this history; show the peak with --at peak";
    failed(&run(&place, "top-sites 2.pickle --at oom"), why);
    failed(
        &run(&place, "diff 5.pickle 2.pickle --at oom"),
        "2.pickle: no allocation failed in this history; compare the peaks with --at peak",
    );
}

/// Stacks of live blocks only: they are in the segments, and the history does not contain them.
#[test]
fn without_a_history() {
    let place = Place::new();
    let run_of = |record: &str| {
        let conf = format!("record:{record},log:quiet,snapshot:{record}.pickle");
        place.run(&Run::c("planted.c").arg("4").conf(&conf)).ok();
        said(&place, &format!("top-sites {record}.pickle --at end"))
    };
    let text = run_of("state");
    assert!(text.contains("\nincomplete history: earlier allocations are held"), "{text}");
    assert!(text.contains("12.0 MiB  100.00 %       4     -  app  "), "{text}");
    assert!(text.contains(&format!("< leak record/planted.c:{}", line_of("leak"))), "{text}");
    assert!(!run_of("all").contains("incomplete history"));
    // The ring keeps the end, and the segments the rest.
    let conf = "record:all,max_entries:50,log:quiet,snapshot:ring.pickle";
    place.run(&Run::c("planted.c").arg("4").conf(conf)).ok();
    let text = said(&place, "top-sites ring.pickle --at end");
    assert!(text.contains(" entries were dropped: max_entries was reached\n"), "{text}");
    assert!(text.contains("12.0 MiB  100.00 %       4     -  app  "), "{text}");
    assert!(said(&place, "top-sites ring.pickle").contains("44.1 MiB at the peak"), "{text}");
}

#[test]
fn several_files_are_added_up() {
    let place = planted();
    let text = said(&place, "top-sites 2.pickle 5.pickle --at end");
    assert!(
        text.contains("2.pickle, device 0: ") && text.contains("5.pickle, device 0: "),
        "{text}"
    );
    assert!(text.contains("21.0 MiB  100.00 %       7"), "{text}");
    let nothing = "the snapshot has no device 7; omit --device to see all";
    failed(&run(&place, "top-sites 2.pickle --device 7"), nothing);
}

#[test]
fn changes_between_two_snapshots() {
    let place = planted();
    let text = said(&place, "diff 2.pickle 5.pickle");
    let leak = format!("leak record/planted.c:{}", line_of("leak"));
    assert!(text.starts_with("held at the end: 6.00 MiB, then 15.0 MiB: +9.00 MiB\n"), "{text}");
    let row = text.lines().last().expect("a site");
    assert!(row.starts_with("+9.00 MiB  6.00 MiB  15.0 MiB      +3    app"), "{text}");
    assert!(row.contains(&leak), "{text}");
    let text = said(&place, "diff 5.pickle 2.pickle --at peak --group function");
    assert!(text.contains("at the peak: ") && text.contains(": -9.00 MiB\n"), "{text}");
    let text = said(&place, "diff 2.pickle 2.pickle");
    assert!(text.ends_with("0 B\nno call site holds more or less\n"), "{text}");
    // Compared with an empty state.
    let text = said(&place, "diff 2.pickle 2.pickle -n 1 --at #0");
    assert!(text.contains("no call site"), "{text}");
}

/// Checked by Python, which reads the snapshots independently.
#[test]
fn other_formats() {
    if lacks("python3") {
        return;
    }
    let place = planted();
    for (format, name) in
        [("folded", "f"), ("speedscope", "s"), ("perfetto", "p"), ("json", "j"), ("pprof", "q")]
    {
        let at = if format == "folded" { " --at end" } else { "" };
        let arguments = format!("convert 5.pickle --to {format}{at}");
        let stdout = said(&place, &arguments);
        assert_eq!(said(&place, &format!("{arguments} -o {name}")), "");
        let file = fs::read(place.path.join(name)).expect("the file");
        assert_eq!(stdout, String::from_utf8_lossy(&file), "{format}");
    }
    let judge = root().join("tests/it/command/files/formats.py");
    let judged =
        Command::new("python3").arg(judge).current_dir(&place.path).output().expect("python3");
    let stderr = String::from_utf8_lossy(&judged.stderr);
    assert!(judged.status.success(), "{stderr}");
    let why = "--by and --at apply to --to folded only; omit them";
    let ran = run(&place, "convert 5.pickle --to json --by live");
    assert_eq!((ran.code, ran.stderr), (Some(2), format!("cachealloc: {why}\n")));
    let ran = run(&place, "convert 5.pickle --to json -o no/such/folder");
    let problem = "cachealloc: cannot write no/such/folder: ";
    assert!(ran.code == Some(1) && ran.stderr.starts_with(problem), "{ran:?}");
}

#[test]
fn json_for_scripts() {
    if lacks("python3") {
        return;
    }
    let place = planted();
    fs::write(place.path.join("top.json"), said(&place, "top-sites 5.pickle --json"))
        .expect("room");
    let diff = said(&place, "diff 2.pickle 5.pickle --json");
    fs::write(place.path.join("diff.json"), diff).expect("room");
    const JUDGE: &str = "
import json
top = json.load(open('top.json'))
device, = top['devices']
assert top['by'] == 'peak' and device['device'] == 0, top
assert sum(site['end_bytes'] for site in top['sites']) == device['end_bytes'] == 15 << 20, top
leak, = [site for site in top['sites'] if site['end_bytes']]
diff = json.load(open('diff.json'))
assert [diff[key][0]['live_bytes'] >> 20 for key in ('devices_before', 'devices_after')] == [6, 15], diff
change, = diff['sites']
assert (change['growth_bytes'], change['growth_blocks']) == (9 << 20, 3), change
assert [change[key]['live_blocks'] for key in ('before', 'after')] == [2, 5], change
assert change['stack'] == leak['stack'] and change['library'] == 'app', change
assert [frame['name'] for frame in leak['stack']][:3] == ['get', 'leak', 'main'], leak
assert leak['library'] == 'app' and leak['allocations'] == 5 and leak['average_life_us'] is None
";
    let judged =
        Command::new("python3").args(["-c", JUDGE]).current_dir(&place.path).output().expect("it");
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
}

/// As `torch.cuda.memory._dump_snapshot` writes it: Python's pickle, shared frames, no keys of the
/// library.
#[test]
fn snapshots_of_pytorch() {
    if lacks("python3") {
        return;
    }
    const WRITE: &str = "
import pickle
def frame(name, filename, line):
    return dict(name=name, filename=filename, line=line)
forward = frame('forward', '/home/me/model.py', 52)
linear = frame('forward', '/x/site-packages/torch/nn/modules/linear.py', 114)
step, main = frame('step', '/home/me/train.py', 80), frame('<module>', '/home/me/train.py', 99)
native = frame('c10::cuda::CUDACachingAllocator::malloc', '/x/torch/lib/libc10_cuda.so', 4660)
stacks = [[native, linear, forward, step, main], [native, step, main]]
MiB, base = 1 << 20, 0x7f0000000000
def entry(action, addr, size, time, **more):
    return dict(action=action, addr=addr, size=size, stream=0, time_us=time, compile_context='N/A',
                user_metadata='', pool_id=(0, 0), **more)
entries = [entry('segment_alloc', base, 20 * MiB, 1, frames=stacks[0])]
entries += [entry('alloc', base, 4 * MiB, 2, frames=stacks[0])]
for time in range(3, 30, 2):
    entries += [entry('alloc', base + 4 * MiB, 2 * MiB, time, frames=stacks[1])]
    entries += [entry(it, base + 4 * MiB, 2 * MiB, time + 1, frames=stacks[1])
                for it in ('free_requested', 'free_completed')]
def block(address, size, state, frames):
    return dict(address=address, size=size, requested_size=size, state=state, frames=frames)
segment = dict(device=0, address=base, total_size=20 * MiB, allocated_size=4 * MiB, active_size=4 * MiB,
    requested_size=4 * MiB, stream=0, segment_type='large', segment_pool_id=(0, 0), is_expandable=False,
    frames=stacks[0], blocks=[block(base, 4 * MiB, 'active_allocated', stacks[0]),
                              block(base + 4 * MiB, 16 * MiB, 'inactive', [])])
snapshot = dict(segments=[segment], device_traces=[entries], external_annotations=[],
    allocator_settings=dict(PYTORCH_CUDA_ALLOC_CONF='', max_split_size=-1, expandable_segments=False))
pickle.dump(snapshot, open('torch.pickle', 'wb'))
pickle.dump([segment], open('segments.pickle', 'wb'))
";
    let place = Place::new();
    let wrote =
        Command::new("python3").args(["-c", WRITE]).current_dir(&place.path).output().expect("it");
    assert!(wrote.status.success(), "{}", String::from_utf8_lossy(&wrote.stderr));
    let text = said(&place, "top-sites torch.pickle");
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.contains("WHERE")).skip(1).collect();
    let model = "PyTorch  forward me/model.py:52 < step me/train.py:80 < <module> me/train.py:99";
    assert!(rows[0].starts_with("4.00 MiB  66.66 %       1") && rows[0].ends_with(model), "{text}");
    assert!(rows[1].ends_with("PyTorch  step me/train.py:80 < <module> me/train.py:99"), "{text}");
    let text = said(&place, "top-sites torch.pickle --by temporary");
    assert!(text.contains("\n       14  100.00 %           14"), "{text}");
    let text = said(&place, "top-sites segments.pickle");
    assert!(text.starts_with("device 0: 4.00 MiB, without history\n"), "{text}");
    assert!(text.contains("forward me/model.py:52"), "{text}");
    let text = said(&place, "diff segments.pickle torch.pickle");
    assert!(text.ends_with("no call site holds more or less\n"), "{text}");
}

#[test]
fn files_that_are_not_snapshots() {
    let place = planted();
    let file = fs::read(place.path.join("2.pickle")).expect("the snapshot");
    let write = |name: &str, bytes: &[u8]| fs::write(place.path.join(name), bytes).expect("room");
    write("cut", &file[..file.len() / 2]);
    write("packed", b"\x1f\x8b\x08\x00");
    write("text", b"hello");
    write("empty", b"");
    let cut = format!("cut is truncated: it ends at byte {}, inside a snapshot", file.len() / 2);
    for command in ["top-sites", "diff 2.pickle", "convert --to json"] {
        for (name, wanted) in [
            ("cut", cut.as_str()),
            ("packed", "packed cannot be read: unexpected end of file"),
            ("text", "text is not a snapshot: it does not begin like a pickle"),
            ("empty", "empty is empty: its writer did not finish or never started"),
            (".", ". is a folder; name the snapshots in it"),
            (
                "none",
                "cannot read none: No such file or directory (os error 2); write one with: cachealloc snapshot PID",
            ),
        ] {
            failed(&run(&place, &format!("{command} {name}")), wanted);
        }
    }
    for arguments in ["top-sites 2.pickle --at yesterday", "top-sites", "convert 2.pickle"] {
        assert_eq!(run(&place, arguments).code, Some(2), "{arguments}");
    }
}

/// A reader that closes the pipe early is no failure.
#[test]
fn into_a_pipe_that_closes() {
    let place = planted();
    let command = cachealloc_tests::command();
    for arguments in
        ["top-sites 5.pickle --json", "convert 5.pickle --to json", "diff 2.pickle 5.pickle"]
    {
        let script = format!("{} {arguments} | true; exit ${{PIPESTATUS[0]}}", command.display());
        let ran = Command::new("bash").args(["-c", &script]).current_dir(&place.path).output();
        let ran = ran.expect("bash");
        assert_eq!((ran.status.code(), ran.stderr), (Some(0), Vec::new()), "{arguments}");
    }
}

/// Numba and other callers through ctypes: the command names the script, not the frames between.
#[test]
fn a_script_that_calls_the_driver_through_ctypes() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let script = "\
import ctypes
driver = ctypes.CDLL('libcuda.so.1')
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
def leak():
    assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(5 << 20)) == 0
leak()
";
    fs::write(place.path.join("ask.py"), script).expect("target/ is writable");
    let flags = "run --record --snapshot a.pickle -- python3 ask.py";
    place.run(&cachealloc(flags)).ok();
    let table = place.run(&cachealloc("top-sites a.pickle")).ok().stdout;
    let row = table.lines().last().expect("a row");
    assert!(row.contains("  app      leak ") && row.contains("ask.py:8 < <module> "), "{table}");
}
