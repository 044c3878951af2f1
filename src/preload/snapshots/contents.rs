//! Contents of a snapshot: the cut of every context (`cut.rs`), the text of its stacks, and the
//! file, which appears only when complete.

use core::ffi::c_char;
use core::ptr::null_mut;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use cachealloc_history as history;
use cachealloc_history::file::{Unnamed, Writer};
use cachealloc_history::name::{Facts, Template};
use cachealloc_history::{Clock, Settings, StackId};
use cachealloc_options::Word;
use cachealloc_statistics::breakdown::Breakdown;

use crate::driver_memory::{breakdown, measured};
use crate::lock::lock;
use crate::out_of_memory::noted;
use crate::process::lock_timeout::LockWait;
use crate::process::watchdog;
use crate::record::symbols::Names;
use crate::snapshots::cut;
use crate::statistics::waits;
use crate::trim::scavenger;
use crate::{apart, config, record, seccomp};

/// A breakdown without the driver's figures is better than a snapshot that waits for a driver in
/// trouble.
const MEASURE_MAX: Duration = Duration::from_millis(200);

/// The names of addresses, kept from one snapshot to the next.
static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// The reason for which a snapshot is written, for its reader. Memory that is live at the end of
/// the process was never freed; memory that is live earlier may be freed later.
#[derive(Clone, Copy)]
pub(crate) enum SnapshotReason {
    Exit,
    /// A signal is about to end the process.
    Ended,
    Shortage,
    Asked,
}

impl SnapshotReason {
    fn word(self) -> &'static str {
        match self {
            SnapshotReason::Exit => "exit",
            SnapshotReason::Ended => "signal",
            SnapshotReason::Shortage => "shortage",
            SnapshotReason::Asked => "asked",
        }
    }
}

/// Writes a snapshot of the whole process. Returns the number of entries missing from the history.
pub(crate) fn write(path: &Path, reason: SnapshotReason) -> io::Result<u64> {
    if matches!(reason, SnapshotReason::Asked | SnapshotReason::Shortage) {
        scavenger::measure_within(MEASURE_MAX);
    }
    let mut snapshot = cut::take(settings(), clock())?;
    snapshot.settings.more.push(("taken".to_string(), reason.word().to_string()));
    let mut breakdowns = breakdown::breakdowns(LockWait::Timeout);
    if let SnapshotReason::Asked = reason {
        for breakdown in &mut breakdowns {
            breakdown.nvml_reading = measured::take_noted(breakdown.device, LockWait::Timeout);
        }
    }
    snapshot.settings.more.extend(breakdowns.iter().flat_map(Breakdown::texts));
    let clock = snapshot.clock;
    snapshot.settings.more.extend(noted::texts(|time_ns| clock.epoch_us_of(time_ns)));
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_with(Names::default);
    names.prepare(snapshot.stacks(), watchdog::heartbeat);
    add_build_ids(&mut snapshot.settings.more, names);
    write_file(path, |out| history::write_snapshot(&snapshot, names, out))?;
    Ok(snapshot.dropped_count())
}

/// Runs `body` with the names of all addresses known so far.
pub(crate) fn with_all_names<T>(body: impl FnOnce(&mut Names) -> T) -> T {
    body(lock(&NAMES).get_or_insert_default())
}

/// Runs `body` with the names of the addresses on these stacks.
pub(crate) fn with_names<T>(
    stacks: impl IntoIterator<Item = StackId>,
    body: impl FnOnce(&mut Names) -> T,
) -> T {
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_default();
    names.prepare(stacks.into_iter(), watchdog::heartbeat);
    body(names)
}

/// Prints where the program waited.
pub(crate) fn print_waits() {
    waits::print(lock(&NAMES).get_or_insert_default());
}

/// Expands the user's file name template for the file of this number.
pub(crate) fn file_name(template: &str, number: u64) -> String {
    let facts = Facts {
        process_id: std::process::id(),
        host: &host(),
        rank: config::rank(),
        sequence: number,
    };
    match Template::parse(template) {
        Ok(template) => template.expand(&facts),
        Err(_) => template.to_string(), // the options allow no such text
    }
}

/// Writes a file that appears only when complete.
pub(crate) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    static SEQUENCE: AtomicU64 = AtomicU64::new(0);
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    // If the program closes a file without a name, its own next file may have the same inode, and
    // would be taken for ours. A filter may forbid to name the file.
    let may = || seccomp::at_calls().is_some() && Path::new(OPEN_FILES).exists();
    let unnamed =
        (apart::is_apart() && may()).then_some(Unnamed { flags: libc::O_TMPFILE, name: name_file });
    let writer = Writer { process_id: std::process::id(), sequence, unnamed };
    let written =
        history::file::write_whole(path, writer, note_part, |out| write(&mut HeartbeatWriter(out)));
    note_part(None);
    written.map(drop)
}

/// The descriptors of the calling thread, which has a table of its own.
const OPEN_FILES: &str = "/proc/thread-self/fd";

/// Gives a file without a name this one.
fn name_file(file: &File, name: &Path) -> io::Result<()> {
    let Some(_at_calls) = seccomp::at_calls() else { return Err(io::Error::other("a filter")) };
    let file = CString::new(format!("{OPEN_FILES}/{}", file.as_raw_fd()))?;
    let name = CString::new(name.as_os_str().as_bytes())?;
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: two C strings.
    match unsafe { libc::linkat(here, file.as_ptr(), here, name.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The incomplete file, for a writer that gives up and must not allocate then.
static PART: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

fn note_part(part: Option<&Path>) {
    let name = part.and_then(|part| CString::new(part.as_os_str().as_bytes()).ok());
    let before = PART.swap(name.map_or(null_mut(), CString::into_raw), Ordering::AcqRel);
    if !before.is_null() {
        // SAFETY: it came from `into_raw`, and the swap took it out: there is no other reference.
        drop(unsafe { CString::from_raw(before) });
    }
}

/// Removes the incomplete file.
pub(crate) fn remove_part() {
    let part = PART.load(Ordering::Acquire);
    if !part.is_null() {
        // SAFETY: a C string; files are written one at a time.
        unsafe { libc::unlink(part) };
    }
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length; the last byte stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

pub(crate) fn settings() -> Settings {
    let config = config::get();
    Settings {
        configuration: config::text().to_string(),
        split_bytes_max: config.policy.max_split_bytes,
        garbage_collection_threshold: config.policy.garbage_collection_threshold,
        expandable_segments: config.policy.expandable_segments,
        roundup_power2_divisions: config.policy.roundup_power2_divisions,
        graph_capture_record_stream_reuse: config.reuse_in_captures,
        entries_max: record::settings::get().max_entries,
        more: vec![
            ("version".to_string(), env!("CARGO_PKG_VERSION").to_string()),
            ("free_mode".to_string(), config.free_mode.word().to_string()),
            ("stacks_refused".to_string(), record::stacks().refused_count().to_string()),
            ("record".to_string(), record::settings::now().record.word().to_string()),
            ("recorded_from_start".to_string(), record::settings::is_from_start().to_string()),
        ]
        .into_iter()
        .chain(process_facts())
        .collect(),
    }
}

/// Returns facts that identify this process among several snapshots.
fn process_facts() -> impl Iterator<Item = (String, String)> {
    let arguments = std::fs::read(format!("{}/cmdline", cachealloc_foreign::own_proc()));
    let arguments = arguments.unwrap_or_default();
    let arguments = String::from_utf8_lossy(&arguments);
    let facts = [
        ("program", Some(history::program(arguments.split('\0')))),
        ("process", Some(std::process::id().to_string())),
        ("host", Some(host())),
        ("rank", config::rank().map(|rank| rank.to_string())),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name.to_string(), fact?)))
}

/// Adds the build ids, by which a reader can find symbols later.
fn add_build_ids(more: &mut Vec<(String, String)>, names: &Names) {
    let facts = names.build_ids();
    more.extend(facts.map(|(path, build_id)| (format!("build_id {path}"), build_id.to_string())));
}

fn clock() -> Clock {
    let time_ns = crate::clock::now_ns();
    Clock { time_ns, epoch_us: time_ns.wrapping_add(crate::clock::epoch_offset_ns()) / 1000 }
}

/// Updates the heartbeat of the writer on every write.
struct HeartbeatWriter<'a, W: ?Sized>(&'a mut W);

impl<W: io::Write + ?Sized> io::Write for HeartbeatWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        watchdog::heartbeat();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
