//! Input from a file or another process is data: it never controls a terminal, and no length is too
//! long.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cachealloc_tests::{Ran, lacks, scratch_file};

use super::cachealloc;
use super::files::sites::run;
use crate::record::snapshots::Place;

/// Sets a title, clears the screen, reverses the line. C1 codes do the same on some terminals. Also
/// ends a string in most formats.
const EVIL: &str = "\x1b]0;owned\x07\x1b[2J\r\u{9b}31m\u{202e}\u{7f}\"\\";

/// A process with a forged page. On SIGUSR1 it claims to have written a snapshot, or to have
/// failed.
const FORGE: &str = r#"
import json, mmap, os, signal, struct, sys, time
evil, long, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
path = os.environ['PAGE']
name = evil + 'x' * long
stat = open('/proc/self/stat').read()
start = int(stat.rsplit(')', 1)[1].split()[19])
namespace = os.stat('/proc/self/ns/pid').st_ino
timed = dict(count=(1 << 64) - 1, nanoseconds=(1 << 64) - 1)
site = dict(device=0, library=name, bytes=1, bytes_at_peak=1, blocks=1, allocations=1, 
    frames=[dict(name=name, filename=name, offset=(1 << 64) - 1)])
said = dict(cachealloc=name, process=os.getpid(), free_mode=name, allocations_served=1, hits=1, barriers=1,
    driver_calls={name: timed}, waits={name: timed, name + '2': timed}, counts={name: 1},
    devices={'0': {'allocated_bytes.all.current': 5}},
    libraries=[dict(device=0, library=name, bytes=1, bytes_at_peak=1)], call_sites=[site],
    snapshots=dict(signal=int(signal.SIGUSR1), written=1, failed=0, last=None, last_problem=None),
    recording=dict(record='all', context=name, stacks=name, max_entries=(1 << 64) - 1, device=-5),
    limits=[dict(device=-5, limit_bytes=1 << 30, held_bytes=(1 << 64) - 1)],
    trims=dict(asked=1, done=1, bytes=(1 << 64) - 1))
if way == 'many':
    said['libraries'] = [dict(said['libraries'][0], library=f'{i}{name}') for i in range(50)]
    said['call_sites'] = [dict(site, frames=[dict(site['frames'][0], name=f'{i}{name}')]) for i in range(50)]
def text():
    # Raw, as no library of ours would write it.
    return json.dumps(said, ensure_ascii=False).encode()
written = 0
def head(text):
    # Answered for ever.
    return struct.pack('=8sIIQQIIIIQQI', b'cachLIVE', 5, os.getpid(), start, namespace,
        0, 0, 1 << 30, written, len(text), 0, 0).ljust(640, b'\0')
def write():
    global written
    with open(path, 'r+b', buffering=0) as file:
        # The sequence is odd while this is being written: a reader may come at any moment.
        written += 1
        file.write(head(text()) + text())
        written += 1
        file.seek(44)
        file.write(struct.pack('=I', written))
# It has its name once it is whole and mapped: a page that its process does not map is a leftover, and is removed.
named, path = path, path.replace('cachealloc', 'made')
os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
write()
page = mmap.mmap(os.open(path, os.O_RDWR), 640)
os.rename(path, named)
path = named
def asked(*_):
    said['snapshots'].update(dict(failed=1, last_problem=name) if way == 'fails' else dict(written=2, last='/' + name))
    write()
signal.signal(signal.SIGUSR1, asked)
print('ready', flush=True)
# Whatever it is told is done at once.
while True:
    page[76:80] = page[68:72]
    time.sleep(0.001)
"#;

pub struct Forger {
    child: Child,
    page: PathBuf,
}

impl Forger {
    pub fn new(long: usize, way: &str) -> Forger {
        let page = scratch_file("page");
        // The name contains the process's number, which is known once it runs.
        let script = "exec 3</proc/self/ns/pid; f=/dev/shm/cachealloc-$(id -u)-$(stat -Lc %i /proc/self/ns/pid)-$$; \
             echo $f >$1; python=$2; shift 2; PAGE=$f exec python3 -c \"$python\" \"$@\"";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&page)
            .args([FORGE, EVIL, &long.to_string(), way])
            // Also a command line of that many letters.
            .arg("y".repeat(long))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut ready)
            .expect("it runs");
        let name = fs::read_to_string(&page).expect("the name of the page");
        let _ = fs::remove_file(&page);
        Forger { child, page: name.trim().into() }
    }

    pub fn run(&self, arguments: &str) -> Ran {
        cachealloc(&arguments.replace("PID", &self.child.id().to_string())).output()
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.page);
    }
}

/// Checks that the output contains nothing that takes effect.
#[track_caller]
fn harmless(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        let acts = |letter: char| {
            letter.is_control() && letter != '\n' || ('\u{202a}'..='\u{202e}').contains(&letter)
        };
        let found = text.char_indices().find(|(_, letter)| acts(*letter));
        let begin = |at: usize| text[..at].chars().rev().take(40).collect::<String>();
        assert!(found.is_none(), "{found:?} behind {:?} (reversed)", found.map(|it| begin(it.0)));
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

#[test]
fn hostile_process_cannot_control_the_terminal() {
    if lacks("python3") {
        return;
    }
    for long in [0, 65_536] {
        for (way, code) in [("writes", Some(0)), ("fails", Some(1))] {
            let forger = Forger::new(long, way);
            let ran = forger.run("snapshot PID");
            assert_eq!(ran.code, code, "{way}: {}", &ran.stderr[..ran.stderr.len().min(500)]);
            harmless(&ran);
            let orders =
                ["record PID on", "record PID state", "trim PID", "limit PID 1G", "limit PID 2G"];
            for arguments in orders {
                let ran = forger.run(arguments);
                assert!(!ran.stdout.is_empty() || ran.code == Some(1), "{arguments}");
                harmless(&ran);
            }
            for arguments in [
                "stats PID",
                "stats --json PID",
                "stats --format prometheus PID",
                "top PID",
                "top --json PID",
                "top",
            ] {
                let ran = forger.run(arguments);
                assert_eq!(
                    ran.code,
                    Some(0),
                    "{arguments}: {}",
                    &ran.stderr[..ran.stderr.len().min(500)]
                );
                harmless(&ran);
                let row = ran.stdout.contains(&forger.child.id().to_string());
                assert!(row, "{arguments}: {}", &ran.stdout[..ran.stdout.len().min(500)]);
                if arguments.contains("--json") {
                    let json: Result<serde_json::Value, _> = serde_json::from_str(&ran.stdout);
                    assert!(json.is_ok(), "{arguments}: {json:?}");
                }
            }
        }
    }
}

/// Writes the same snapshot with another size: hostile names, of any length.
const SNAPSHOTS: &str = r#"
import pickle, sys
evil, long = sys.argv[1], int(sys.argv[2])
name = evil + 'n' * long
for number in (1, 2):
    frames = [dict(name=name, filename='/' + name + '.py', line=7), dict(name=name, filename='/' + name, line=8)]
    entry = dict(action='alloc', addr=4096, size=512 * number, stream=0, time_us=1, frames=frames, category=name,
        user_metadata=name, compile_context=name)
    block = dict(address=4096, size=1024, requested_size=512 * number, state='active_allocated', frames=frames)
    segment = dict(device=0, address=4096, total_size=1024, stream=0, segment_type='small', blocks=[block])
    snapshot = dict(segments=[segment], device_traces=[[entry]], allocator_settings={name: name},
        external_annotations=[dict(name=name, stage='START', device=0, time_us=5)])
    pickle.dump(snapshot, open(f'{number}.pickle', 'wb'), 4)
"#;

#[test]
fn names_in_a_snapshot_cannot_control_the_terminal() {
    if lacks("python3") {
        return;
    }
    for long in [0, 65_536] {
        let place = Place::new();
        let made = Command::new("python3")
            .args(["-c", SNAPSHOTS, EVIL, &long.to_string()])
            .current_dir(&place.path)
            .status();
        assert!(made.expect("python3 is installed").success());
        // A file's name is hostile input as well.
        let evil = place.path.join(format!("{EVIL}.pickle"));
        fs::copy(place.path.join("1.pickle"), &evil).expect("target/ is writable");
        for arguments in [
            "top-sites 1.pickle",
            "top-sites 1.pickle 2.pickle --json",
            "diff 1.pickle 2.pickle",
            "diff 1.pickle 2.pickle --json",
            "findings 1.pickle 2.pickle",
            "findings 1.pickle 2.pickle --json",
            "convert 1.pickle --to folded -o -",
            "convert 1.pickle --to speedscope",
            "convert 1.pickle --to json -o -",
        ] {
            let ran = run(&place, arguments);
            let begin = &ran.stderr[..ran.stderr.len().min(500)];
            assert_eq!(ran.code, Some(0), "{arguments}: {begin}");
            harmless(&ran);
        }
        let report = |file: &std::path::Path| {
            cachealloc("report -o -").arg(file).folder(&place.path).output()
        };
        harmless_page(&report(&evil));
        fs::write(&evil, "text").expect("target/ is writable");
        let ran = report(&evil);
        assert_eq!(ran.code, Some(1));
        harmless(&ran);
        let mut ran = cachealloc("top-sites 1.pickle").arg(&evil).folder(&place.path).output();
        harmless(&ran);
        ran = cachealloc("convert 1.pickle --to json -o")
            .arg(place.path.join(EVIL).join(EVIL))
            .folder(&place.path)
            .output();
        assert_eq!(ran.code, Some(1));
        harmless(&ran);
    }
}

/// The page's script has tabs, if any.
#[track_caller]
fn harmless_page(ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let acts = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    assert_eq!(ran.stdout.find(acts), None);
}
