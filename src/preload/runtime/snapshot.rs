//! One snapshot: every context's cut, the text of its stacks, and a file that is whole or not there.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use cachealloc_core::options::Record;
use cachealloc_core::{Allocator, BlockView};
use cachealloc_history as history;
use cachealloc_history::file::Writer;
use cachealloc_history::name::{self, Facts, Template};
use cachealloc_history::{
    BlockState, Clock, Device, Entry, OomReport, Segment, Settings, Snapshot, oom_report,
};

use crate::record::foreign;
use crate::record::recorder::{self, Cut};
use crate::record::symbols::Names;
use crate::runtime::contexts::{self, Context};
use crate::runtime::extents::{self, Place};
use crate::runtime::{alloc, lock, snapshots, stats, waits};
use crate::{config, log, record};

/// A thread that was stopped while it held a lock of ours keeps it; its context is left out.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// The report names so many call sites.
const SITES_SHOWN: usize = 5;

/// What addresses mean, kept from one snapshot to the next.
static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Writes a snapshot of the whole process. Answers how many entries the history lacks.
pub fn write(path: &Path) -> io::Result<u64> {
    let snapshot = take();
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_with(Names::default);
    names.prepare(stacks_of(&snapshot), snapshots::sign_of_life);
    static SEQUENCE: AtomicU64 = AtomicU64::new(0);
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let writer = Writer { process_id: std::process::id(), sequence };
    history::file::write_whole(path, writer, |out| {
        history::write_snapshot(&snapshot, names, &mut Lively(out))
    })?;
    Ok(snapshot.dropped_count())
}

/// Says where the program waited.
pub fn print_waits() {
    waits::print(lock(&NAMES).get_or_insert_default());
}

/// The file name that the user's template means for the snapshot of this number.
pub fn file_name(number: u64) -> String {
    let template = &config::get().history.snapshot;
    let facts = Facts {
        process_id: std::process::id(),
        host: &host(),
        rank: name::rank(|variable| std::env::var(variable).ok()),
        sequence: number,
    };
    match Template::parse(template) {
        Ok(template) => template.expand(&facts),
        Err(_) => template.clone(), // the options allow no such text
    }
}

/// The report for a request of this context that is about to fail.
pub fn shortage_text(context: &Context, asked_bytes: u64, free: u64, total: u64) -> String {
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_with(Names::default);
    let Some(cut) = cut(context, false) else { return String::new() };
    let blocks = || cut.segments.iter().flat_map(|segment| &segment.blocks);
    let live = blocks().filter(|block| block.state == BlockState::ActiveAllocated);
    let sites = history::sites(live.map(|block| (block.stack, block.bytes)));
    let recorded = sites.iter().any(|site| !site.stack.is_none());
    names.prepare(sites.iter().take(SITES_SHOWN).map(|site| site.stack), || ());
    let free_blocks = blocks().filter(|block| block.state == BlockState::Inactive);
    let report = OomReport {
        device: context.device.max(0) as u32,
        asked_bytes,
        limit_bytes: config::get().policy.limit_bytes,
        reserved_bytes: cut.segments.iter().map(|segment| segment.bytes).sum(),
        allocated_bytes: cut.segments.iter().map(Segment::allocated_bytes).sum(),
        free_block_bytes_max: free_blocks.map(|block| block.bytes).max().unwrap_or(0),
        driver_free_bytes: Some(free),
        driver_total_bytes: Some(total),
        sites: if recorded { &sites[..] } else { &[] },
    };
    oom_report(&report, names)
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length; the last byte stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

fn take() -> Snapshot {
    let mut snapshot = Snapshot { settings: settings(), clock: clock(), ..Snapshot::default() };
    for context in contexts::every() {
        snapshots::sign_of_life();
        match cut(context, true) {
            Some(cut) => add(&mut snapshot, context, cut),
            None => log::warn(format_args!("snapshot: a context is busy, and left out")),
        }
    }
    add_foreign(&mut snapshot);
    for device in &mut snapshot.devices {
        device.entries.sort_by_key(|entry| entry.time_ns); // stable: several contexts, each in order
    }
    snapshot.sort();
    snapshot
}

fn cut(context: &Context, with_entries: bool) -> Option<Cut> {
    let mut allocator = lock_within(&context.allocator, LOCK_WAIT_MAX)?;
    context.lookaside.empty(|held| alloc::take_back(&mut allocator, held));
    alloc::note_allocated(context, &allocator);
    Some(context.recorder.cut(&mut allocator, context.device, with_entries, requested))
}

/// What the program asked for. The core knows the request that first got a block; a list hands the
/// same block out again without it.
fn requested(block: &BlockView) -> u64 {
    match extents::place(block.address.0) {
        Place::Block(live) => live.requested_bytes,
        _ => block.requested_bytes,
    }
}

fn add(snapshot: &mut Snapshot, context: &Context, cut: Cut) {
    add_entries(snapshot, context.device, cut.entries, cut.dropped_count);
    snapshot.segments.extend(cut.segments);
}

fn add_foreign(snapshot: &mut Snapshot) {
    let cut = foreign::cut();
    for (device, entries, dropped_count) in cut.entries {
        add_entries(snapshot, device, entries, dropped_count);
    }
    snapshot.segments.extend(cut.segments);
}

fn add_entries(snapshot: &mut Snapshot, device: i32, entries: Vec<Entry>, dropped_count: u64) {
    let index = device.max(0) as usize;
    if snapshot.devices.len() <= index {
        snapshot.devices.resize_with(index + 1, Device::default);
    }
    let device = &mut snapshot.devices[index];
    device.entries.extend(entries);
    device.dropped_count += dropped_count;
    device.recorded_from_start = config::get().history.record == Record::All;
}

fn stacks_of(snapshot: &Snapshot) -> impl Iterator<Item = history::StackId> {
    let entries = snapshot.devices.iter().flat_map(|device| &device.entries);
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let segments = snapshot.segments.iter().map(|segment| segment.stack);
    entries.map(|entry| entry.stack).chain(blocks.map(|block| block.stack)).chain(segments)
}

fn settings() -> Settings {
    let config = config::get();
    Settings {
        configuration: std::env::var("CACHEALLOC_CONF").unwrap_or_default(),
        split_bytes_max: config.policy.max_split_bytes,
        garbage_collection_threshold: config.policy.garbage_collection_threshold,
        expandable_segments: false,
        entries_max: config.history.max_entries as u64,
        more: vec![
            ("version".to_string(), env!("CARGO_PKG_VERSION").to_string()),
            ("free_mode".to_string(), stats::mode_name(config.free_mode).to_string()),
            ("stacks_refused".to_string(), record::stacks().refused_count().to_string()),
        ],
    }
}

fn clock() -> Clock {
    let time_ns = recorder::now_ns();
    Clock { time_ns, epoch_us: time_ns.wrapping_add(recorder::epoch_offset_ns()) / 1000 }
}

fn lock_within(mutex: &Mutex<Allocator>, wait_max: Duration) -> Option<MutexGuard<'_, Allocator>> {
    let begun = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() > wait_max => return None,
            Err(TryLockError::WouldBlock) => {
                snapshots::sign_of_life();
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

/// Tells with every write that the writer gets on.
struct Lively<'a, W: ?Sized>(&'a mut W);

impl<W: io::Write + ?Sized> io::Write for Lively<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        snapshots::sign_of_life();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
