//! Files that are not, or no longer, snapshots: each gets a one-sentence error and never a panic,
//! and whatever is still readable can be analysed. Random ones: `tests/fuzz/mutations.rs`.

use std::fs;
use std::sync::LazyLock;

use cachealloc_analysis::model::Snapshot;
use cachealloc_analysis::names::Names;
use cachealloc_analysis::waste::{Pattern, Waste};
use cachealloc_analysis::{
    Aggregate, Group, Lifetimes, ReadError, Reserved, SiteKey, Usage, When, adjacent_free,
    by_group, difference, formats, read, reserved_over_time, shortages, sites, telling_moments,
};

use crate::made::{self, Directory};
use crate::python;
use crate::skip::lacks;
use crate::tier;

/// Snapshots by our writer, and by Python with all protocols that share objects differently.
static REAL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    const REWRITE: &str = "import pickle, sys
for path in sys.argv[1:]:
    snapshot = pickle.load(open(path, 'rb'))
    snapshot['external_annotations'] = [dict(name='step', stage='START', device=0, time_us=5)]
    snapshot['host_traces'] = [dict(action='alloc', addr=1, size=2, stream=0, time_us=3)]
    snapshot['device_traces'][0].append(dict(action='oom', device_free=7, size=9, stream=0, time_us=4))
    snapshot['device_traces'][0].append(
        dict(action='annotate', addr=7, size=0, stream=0, user_metadata=dict(a=1, b='x')))
    for protocol in (2, 4):
        pickle.dump(snapshot, open(f'{path}.{protocol}', 'wb'), protocol)
";
    let directory = Directory::new("real");
    let mut files = Vec::new();
    for seed in [3, 4] {
        let path = directory.0.join(seed.to_string());
        files.push(made::pickled(&made::history(seed, 30)));
        fs::write(&path, files.last().expect("one")).expect("a file");
        python::expect(&["-c", REWRITE], &[&path]);
        for protocol in [2, 4] {
            let path = format!("{}.{protocol}", path.display());
            files.push(fs::read(path).expect("Python wrote it"));
        }
    }
    files
});

/// Runs every analysis on the snapshot.
fn analyse(snapshot: &Snapshot) {
    for device in snapshot.devices.iter().chain([&snapshot.host]) {
        let lifetimes = Lifetimes::of(device);
        let held = lifetimes.bytes_over_time();
        assert_eq!(held.len(), device.entries.len() + 1);
        let _ = reserved_over_time(device);
        let _ = Usage::of_all(&device.segments).fragmentation();
        let waste = Waste::of(device, &lifetimes);
        for (index, life) in lifetimes.all.iter().enumerate() {
            let _ = Pattern::ALL.map(|pattern| waste.shows(pattern, index, life));
        }
        let _ = by_group(&lifetimes, &vec![0; lifetimes.all.len()], 1, &telling_moments(&held, 10));
        let _ = shortages(device, &lifetimes);
        let mut reserved = Reserved::of(device, &lifetimes);
        for moment in 0..=lifetimes.last {
            let _ = adjacent_free(&reserved.at(moment), |block| block.stack);
        }
        for when in [When::End, When::Peak, When::Entry(3), When::AfterUs(5)] {
            let at = when.resolve(device, &lifetimes).expect("there is always one");
            let _ = sites(device, &lifetimes, at);
        }
    }
    let mut common = Snapshot::default();
    let mut aggregate = Aggregate::default();
    aggregate.add(&mut common, snapshot, When::Peak, None);
    let names = Names::of(&common);
    for group in [Group::Stack, Group::Line, Group::Function] {
        let _ = difference(&common, &names, group, &Aggregate::default(), &aggregate);
    }
    let mut out = Vec::new();
    formats::folded(snapshot, SiteKey::Live, When::Peak, &mut out).expect("memory takes it");
    formats::speedscope(snapshot, "x", &mut out).expect("memory takes it");
    formats::perfetto(snapshot, &mut out).expect("memory takes it");
    formats::json(snapshot, &mut out).expect("memory takes it");
}

#[test]
fn whole_files_can_be_analysed() {
    if lacks("python3") {
        return;
    }
    REAL.iter().for_each(|file| analyse(&made::read(file)));
    let read = made::read(&REAL[1]);
    assert_eq!((read.annotations.len(), read.host.entries.len()), (1, 1));
    let said = read.devices[0].entries.last().expect("the annotation").user_metadata;
    assert_eq!(read.texts.get(said), "a=1 b=x");
}

#[test]
fn cut_anywhere() {
    if lacks("python3") {
        return;
    }
    // Each cut reads the file up to it.
    let step = tier::count(17, 1);
    for file in [&REAL[0], &REAL[1], &REAL[2]] {
        assert!(matches!(read(&file[..0]), Err(ReadError::Empty)));
        for end in (1..file.len()).step_by(step) {
            match read(&file[..end]) {
                Err(ReadError::Truncated { at }) => assert_eq!(at, end as u64),
                Err(error) => panic!("cut at {end}, the file {error}"),
                Ok(_) => panic!("cut at {end}, the file is read"),
            }
        }
        // Bytes after the pickle are ignored.
        analyse(&made::read(&[file, &b"more"[..]].concat()));
    }
}

#[track_caller]
fn refused(file: &[u8], says: &str) {
    let error = read(file).map(|_| ()).expect_err(says).to_string();
    assert!(error.contains(says), "{error:?} does not say {says:?}");
    assert!(!error.contains('\n') && error.len() < 200, "{error:?} is no sentence");
}

#[test]
fn foreign_files() {
    refused(b"", "is empty");
    refused(b"\x1f\x8b\x08\x00", "gunzip");
    refused(b"\x28\xb5\x2f\xfd", "unzstd");
    refused(b"\xfd7zXZ", "unxz");
    refused(b"PK\x03\x04", "torch.save");
    refused(b"{\"segments\": []}", "is JSON");
    refused(b"hello, world", "does not begin like a pickle");
    refused(b"\x7fELF", "does not begin like a pickle");
    refused(b"\x80", "truncated");
    refused(b"\x80\x09", "protocol version 9");
    refused(b"\x80\x02.", "is empty");
    refused(b"\x80\x02]((K\x01e.", "to fill is missing");
    refused(b"\x80\x02N.", "it holds None");
    refused(b"\x80\x02}.", "it holds a dict");
    refused(b"\x80\x02\xff", "opcode 0xff does not occur");
}

/// Pickles that people confuse with snapshots.
#[test]
fn foreign_pickles() {
    if lacks("python3") {
        return;
    }
    const WRITE: &str = "
import collections, datetime, pickle, sys
class Tensor:
    def __reduce__(self): return (print, ('this must never run',))
for number, value in enumerate([
    Tensor(), collections.OrderedDict(a=1), datetime.datetime.now(), {1, 2}, b'bytes',
    {'a': 1}, [1, 2], 'text', 1 << 200, {'segments': 5}, {'device_traces': [[1]]},
    {'segments': [dict(address=1, total_size='x', blocks=[])]},
    {'device_traces': [[dict(action='alloc', size=-1)]]},
    {'segments': [dict(device=1 << 40, address=1, total_size=1, stream=0, blocks=[])]},
]):
    pickle.dump(value, open(f'{sys.argv[1]}/{number}', 'wb'), 2 + number % 3)
";
    let says = [
        "a Python object",
        "a Python object",
        "a Python object",
        // A set, which needs a class in protocol 3.
        "a Python object",
        "raw bytes",
        "without `segments` or `device_traces`",
        "a number was found in the list of segments",
        "it holds a text",
        "a number has 26 bytes",
        "in `segments`, a number is where a list should be",
        "a number was found in the list of entries",
        "`total_size` is a text",
        "`size` is a number, not a non-negative number",
        "device number 1099511627776 is above 1023",
    ];
    let directory = Directory::new("foreign");
    python::expect(&["-c", WRITE], &[&directory.0]);
    for (number, says) in says.into_iter().enumerate() {
        refused(&fs::read(directory.0.join(number.to_string())).expect("Python wrote it"), says);
    }
}

/// Numbers that announce more than the file holds, and small files that would expand to large
/// objects.
#[test]
fn bombs() {
    refused(b"\x80\x02X\xff\xff\xff\xff", "a text has 4294967295 bytes");
    refused(b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "a text has");
    refused(b"\x80\x02X\xff\xff\xff\x03abc", "truncated");
    refused(b"\x80\x02Nr\xff\xff\xff\xff.", "memo 4294967295 is out of order");
    refused(b"\x80\x02j\xff\xff\xff\xff.", "memo 4294967295 is empty");
    // Nesting as deep as the file is long.
    refused(&[&b"\x80\x02"[..], &b"]".repeat(1_000_000), &b"a".repeat(999_999), b"."].concat(), "");
    refused(
        &[&b"\x80\x02"[..], &b"(".repeat(1_000_000), b"."].concat(),
        "the stack of values is empty",
    );
    // Lists of the same list, each ten times as long as the one before.
    let mut bomb = b"\x80\x02]q\x00(K\x01K\x02e".to_vec();
    for level in 0..20 {
        bomb.extend([b']', b'q', level + 1, b'(']);
        bomb.extend([b'h', level].repeat(10));
        bomb.push(b'e');
    }
    refused(&[&bomb[..], b"."].concat(), "in the list of segments");
    // One list of entries for a thousand devices.
    let entry = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x01\x8c\x06streamK\x00u";
    let traces = [&b"]q\x00("[..], &entry.repeat(10), b"e0](", &b"h\x00".repeat(1000), b"e"];
    let file = [&b"\x80\x02}\x8c\x0ddevice_traces"[..], &traces.concat(), b"s."].concat();
    refused(&file, "the same list is used twice");
    // A stack that grows after an entry refers to it.
    let frame = b"}(\x8c\x04name\x8c\x01f\x8c\x08filename\x8c\x01a\x8c\x04lineK\x01ua";
    let entry = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x01\x8c\x06framesh\x00u0";
    let file = [&b"\x80\x02]q\x00"[..], frame, entry, b"h\x00Na."].concat();
    refused(&file, "a list grows after it was used");
    // A dict that contains itself.
    refused(b"\x80\x02}q\x00\x8c\x01ah\x00s.", "without `segments`");
    let own = b"\x80\x02}q\x00(\x8c\x12allocator_settingsh\x00\x8c\x08segments]u.";
    analyse(&made::read(own));
}
