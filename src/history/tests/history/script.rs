//! `scripts/check-snapshot.py`, which other tests trust with real files: it accepts sound files,
//! and rejects every known way to break a file, in the snapshot or in the file itself.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::Directory;
use crate::readers::pickled;
use crate::skip::lacks;
use crate::soundness::{BREAKAGES, small};
use crate::{json, python, random};

fn script() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/check-snapshot.py");
    script.to_str().unwrap().to_string()
}

#[test]
fn accepts_sound_files() {
    if lacks("python3") {
        return;
    }
    let directory = Directory::new("accepts");
    let mut files: Vec<PathBuf> = Vec::new();
    for seed in 0..40 {
        let snapshot = random::snapshot(seed, seed * 15);
        let described = &mut random::Described::default();
        files.push(directory.0.join(format!("{seed}.pickle")));
        fs::write(files.last().unwrap(), pickled(&snapshot, described)).unwrap();
    }
    files.push(directory.0.join("small.json"));
    fs::write(files.last().unwrap(), json::snapshot(&small(), &mut ())).unwrap();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let said = python::expect(&[&script(), "--opcodes"], &files);
    assert_eq!(said.lines().filter(|line| line.contains(": sound: ")).count(), files.len());
    assert!(said.contains("entries, from the start"), "{said}");
    assert!(said.contains("entries, not from the start"), "{said}");
}

#[test]
fn rejects_every_unsound_snapshot() {
    if lacks("python3") {
        return;
    }
    let directory = Directory::new("unsound");
    let files: Vec<PathBuf> = (0..)
        .zip(BREAKAGES)
        .map(|(number, breakage)| {
            let mut snapshot = small();
            (breakage.apply)(&mut snapshot);
            let path = directory.0.join(format!("{number} {}", breakage.name.replace(' ', "_")));
            fs::write(&path, pickled(&snapshot, &mut ())).unwrap();
            path
        })
        .collect();
    reject(&files);
}

/// Edits that make a snapshot invalid: each line breaks a good file that Python has read as `s`.
const EDITS: &[&str] = &[
    "del s['segments']",
    "s['segments'] = {}",
    "del s['device_traces']",
    "s['device_traces'].append(None)",
    "del s['allocator_settings']['max_split_size']",
    "s['allocator_settings']['expandable_segments'] = 0",
    "s['allocator_settings']['trace_alloc_overflowed'] = True",
    "s['segments'][0]['total_size'] += 512",
    "s['segments'][0]['allocated_size'] = 0",
    "s['segments'][0]['active_size'] += 1",
    "s['segments'][0]['requested_size'] += 1",
    "s['segments'][0]['segment_pool_id'] = [0, 0]",
    "s['segments'][0]['segment_pool_id'] = (0,)",
    "s['segments'][0]['segment_type'] = 'medium'",
    "s['segments'][0]['frames'] = None",
    "s['segments'][0]['device'] = 5",
    "s['segments'][0]['blocks'][0]['state'] = 'active_awaiting_free'",
    "s['segments'][0]['blocks'][0]['frames'] = None",
    "del s['segments'][0]['blocks'][0]['frames']",
    "s['segments'][0]['blocks'][0]['address'] += 1",
    "s['device_traces'][0][0]['frames'] = None",
    "s['device_traces'][0][0]['frames'] = [{'name': None, 'filename': '', 'line': 1}]",
    "s['device_traces'][0][0]['frames'] = [{'name': '', 'filename': '', 'line': '1'}]",
    "s['device_traces'][0][0]['frames'] = [{'name': '', 'line': 1}]",
    "s['device_traces'][0][0]['action'] = 'malloc'",
    "s['device_traces'][0][0]['time_us'] = 5.5",
    "s['device_traces'][0][1]['time_us'] -= 10**9",
    "s['device_traces'][0][0]['pool_id'] = 0",
    "s['device_traces'][0][0]['category'] = 'app'",
    "s['device_traces'][0][0]['category'] = None",
    "s['device_traces'][0][0]['stream'] = 2**60",
    "del s['device_traces'][0][0]['addr']",
    "s['device_traces'][0][-1]['addr'] = s['device_traces'][0][-1].pop('device_free')",
    "del s['device_traces'][0][4]",
    "del s['device_traces'][0][5]",
    "s['device_traces'][0].insert(5, dict(s['device_traces'][0][3]))",
    "s['external_annotations'] = [dict(name='step', stage='START', device=0, time_us=5)]",
    "s['external_annotations'] = [dict(name='step', stage='END', device=0, time_us=5)]",
    "s['external_annotations'] = [dict(name='step', stage=stage, device=0) for stage in ('START', 'END')]",
    "s['external_annotations'] = [dict(name='a', stage=s, device=0, time_us=t) for s, t in (('START', 5), ('END', 4))]",
    "s = []",
    "s = complex(1, 2)",
];

const EDIT: &str = "
import pickle, sys
path, output, edit = sys.argv[1:]
s = pickle.load(open(path, 'rb'))
exec(edit)
pickle.dump(s, open(output, 'wb'), 2)
";

#[test]
fn rejects_every_broken_file() {
    if lacks("python3") {
        return;
    }
    let directory = Directory::new("broken");
    let good = directory.0.join("good.pickle");
    fs::write(&good, pickled(&small(), &mut ())).unwrap();
    let mut files = Vec::new();
    for (number, edit) in EDITS.iter().enumerate() {
        files.push(directory.0.join(format!("{number}.pickle")));
        let output = files.last().unwrap();
        python::expect(&["-c", EDIT], &[&good, output, Path::new(edit)]);
    }
    let whole = fs::read(&good).unwrap();
    for (name, content) in [
        ("half", &whole[..whole.len() / 2]),
        ("empty", &[]),
        ("text", b"not a pickle"),
        ("json", b"{\"segments\": []}"),
        ("twice", &[&whole[..], &whole[..]].concat()),
    ] {
        files.push(directory.0.join(name));
        fs::write(files.last().unwrap(), content).unwrap();
    }
    files.push(directory.0.join("missing"));
    reject(&files);
}

#[test]
fn rejects_opcodes_that_the_viewer_does_not_know() {
    if lacks("python3") {
        return;
    }
    let directory = Directory::new("opcodes");
    let (good, large) = (directory.0.join("good.pickle"), directory.0.join("large.pickle"));
    fs::write(&good, pickled(&small(), &mut ())).unwrap();
    // A nine-byte number, for which Python uses another opcode, and a batch as PyTorch writes it.
    let edit = "s['allocator_settings']['x'] = 1 << 4000";
    python::expect(&["-c", EDIT], &[&good, &large, Path::new(edit)]);
    python::expect(&[&script()], &[&large]);
    assert!(!python::run(&[&script(), "--opcodes"], &[&large]).status.success());

    let mut batch = b"\x80\x02}X\x01\x00\x00\x00a](".to_vec();
    batch.extend(b"K\x01".repeat(1001));
    batch.extend(b"es.");
    let path = directory.0.join("batch.pickle");
    fs::write(&path, batch).unwrap();
    let said = python::run(&[&script(), "--opcodes"], &[&path]).stdout;
    assert!(String::from_utf8_lossy(&said).contains("a batch of 1001 items"));
}

#[test]
fn from_the_start_means_that_everything_is_explained() {
    if lacks("python3") {
        return;
    }
    let directory = Directory::new("start");
    let path = directory.0.join("dump.pickle");
    let mut snapshot = small();
    fs::write(&path, pickled(&snapshot, &mut ())).unwrap();
    python::expect(&[&script(), "--from-start"], &[&path]);
    snapshot.devices[0].entries.remove(0);
    fs::write(&path, pickled(&snapshot, &mut ())).unwrap();
    python::expect(&[&script()], &[&path]);
    let output = python::run(&[&script(), "--from-start"], &[&path]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("0 blocks and 1 segments were there before the first entry"), "{said}");
}

/// Each file is rejected with a message that names it, and without a traceback.
fn reject(files: &[PathBuf]) {
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let output = python::run(&[&script(), "--from-start"], &paths);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    for path in paths {
        let about = format!("{}: ", path.display());
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with(&about)).collect();
        assert!(!lines.is_empty(), "nothing about {about}");
        assert!(!lines.iter().any(|line| line.contains(": sound: ")), "{lines:?}");
    }
}
