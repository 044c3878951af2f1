//! The cut of a snapshot: all segments, blocks and entries of the process at one moment.
//!
//! Note [Cut]. All allocators are locked at that moment, but only to list the segments and to note
//! how far each history has come: a program with a million blocks must not stand still while they
//! are copied. Blocks and entries are copied afterwards, some at a time, each time under the locks
//! of one context. A thread that changes the row of a block meanwhile keeps the old row for the
//! copy (`RowsCopy`). Entries that are overwritten meanwhile count as dropped (`RingCopy`).
//!
//! Without a recording there are no rows, and the blocks are listed at the cut. If the rows do not
//! agree with the allocator, or are gone because the recording ended meanwhile, a second cut lists
//! the blocks in the same way.

use std::io;
use std::sync::{MutexGuard, RwLockReadGuard};
use std::time::Duration;

use cachealloc_core::{Allocator, BlockView};
use cachealloc_history::{
    Block, Clock, MergedEntries, RingEntries, RingMerge, Segment, Settings, Snapshot, tiled,
};

use crate::cache::blocks;
use crate::clock::Instant;
use crate::driver_memory;
use crate::driver_memory::cut::DriverCut;
use crate::graphs::graph_memory;
use crate::heap;
use crate::heap::Section;
use crate::log;
use crate::pagemap;
use crate::pagemap::Place;
use crate::process::lock_timeout::LockWait;
use crate::process::watchdog;
use crate::record;
use crate::record::ranges;
use crate::record::recorder::{BlockSource, Cut};
use crate::state::contexts;
use crate::state::contexts::Context;

/// A context whose end takes longer is left out.
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// A context with its locked allocator, and a guard that keeps the context alive unless it is
/// already ending.
type Locked =
    (&'static Context, MutexGuard<'static, Allocator>, Option<RwLockReadGuard<'static, ()>>);

/// Takes a snapshot, with these settings and the clock at about this moment.
pub(super) fn take(settings: Settings, clock: Clock) -> io::Result<Snapshot<MergedEntries>> {
    let mut snapshot = Snapshot { settings, clock, ..Snapshot::default() };
    if !fill(&mut snapshot, BlockSource::Rows)? {
        snapshot.segments.clear();
        fill(&mut snapshot, BlockSource::Allocator)?;
    }
    snapshot.graph_segments = graph_memory::segments().collect();
    // Read after the entries, so that each of their numbers has a name.
    let ranges = LockWait::Timeout.lock(&ranges::ALL);
    snapshot.ranges = ranges.map(|ranges| ranges.texts()).unwrap_or_default();
    snapshot.sort();
    Ok(snapshot)
}

/// Fills in segments, blocks and entries. Returns `false` if this source does not have the blocks.
fn fill(snapshot: &mut Snapshot<MergedEntries>, source: BlockSource) -> io::Result<bool> {
    let mut entries = RingMerge::new(record::settings::is_from_start());
    let (cuts, of_driver) = cut_all(source)?;
    // First, because new entries overwrite the oldest ones.
    let mut with_blocks = Vec::new();
    for (context, mut cut) in cuts {
        let ring = copy_entries(context, &mut cut);
        entries.add(context.device.max(0) as u32, ring);
        with_blocks.push((context, cut));
    }
    let of_driver = of_driver.copied(watchdog::heartbeat);
    for (device, ring) in of_driver.rings {
        entries.add(device as u32, ring);
    }
    for (device, others) in of_driver.others {
        entries.add_others(device as u32, others.iter().collect());
    }
    for (context, mut cut) in with_blocks {
        let blocks = copy_blocks(context, &mut cut);
        let mut segments = cut.segments;
        if !blocks.is_some_and(|blocks| give_blocks(&mut segments, blocks)) {
            return Ok(false);
        }
        snapshot.add(segments);
    }
    snapshot.add(of_driver.segments);
    (snapshot.devices, snapshot.host) = entries.finish(snapshot.settings.entries_max);
    Ok(true)
}

/// Makes the cut of all contexts, and of what the driver serves itself. All contexts are locked at
/// once, because a segment that one context releases may belong to another a moment later. The same
/// holds for all segments of a context that is about to end.
#[inline(never)]
fn cut_all(source: BlockSource) -> io::Result<(Vec<(&'static Context, Cut)>, DriverCut)> {
    let (mut locked, section) = lock_with_room(source, contexts::every)?;
    let mut cuts = Vec::with_capacity(locked.len());
    for (context, allocator, _) in &mut locked {
        let cut = context.recorder.cut(allocator, context.device, source, requested);
        cuts.push((*context, cut));
    }
    let of_driver = driver_memory::cut::cut();
    note_taken(&cuts, &of_driver.segments);
    drop(locked);
    drop(section);
    Ok((cuts, of_driver))
}

/// Locks these contexts, with memory reserved for their cuts: without memory the writer gives up,
/// and must hold no lock then.
fn lock_with_room<I: Iterator<Item = &'static Context>>(
    source: BlockSource,
    contexts: impl Fn() -> I,
) -> io::Result<(Vec<Locked>, Section)> {
    const ATTEMPTS_MAX: usize = 20;
    let mut capacity_bytes = ROOM_BYTES_MIN;
    for _ in 0..ATTEMPTS_MAX {
        let section = Section::open(capacity_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut locked = Vec::new();
        for context in contexts() {
            watchdog::heartbeat();
            let open = open_within(context, END_WAIT_MAX);
            match LockWait::Timeout.lock(&context.allocator) {
                Some(allocator) => locked.push((context, allocator, open)),
                None => log::warn(format_args!("snapshot: skipped a context: its lock timed out")),
            }
        }
        let cut_bytes = |(context, allocator, _): &mut Locked| {
            heap::beside_section(|| empty_lists(context, allocator));
            context.recorder.cut_bytes(allocator, source) + size_of::<(&Context, Cut)>()
        };
        let needed: usize =
            locked.iter_mut().map(cut_bytes).sum::<usize>() + driver_memory::cut::bytes();
        if needed + ROOM_BYTES_MIN / 2 <= capacity_bytes {
            return Ok((locked, section));
        }
        // Leave a margin for allocations made meanwhile.
        capacity_bytes = needed + needed / 4 + ROOM_BYTES_MIN;
    }
    Err(io::Error::other("the program allocates faster than its blocks can be listed"))
}

const ROOM_BYTES_MIN: usize = 1 << 20;

/// Records in each device's history that this snapshot was taken. Later snapshots contain that
/// entry; this one does not, as in PyTorch.
fn note_taken(cuts: &[(&'static Context, Cut)], of_driver: &[Segment]) {
    let mut devices = Vec::new();
    for (context, _) in cuts.iter().filter(|(context, _)| context.recorder.is_on()) {
        let device = context.device;
        if !devices.contains(&device) {
            devices.push(device);
            let of_device = cuts.iter().filter(|(context, _)| context.device == device);
            let of_contexts: u64 = of_device.map(|(_, cut)| cut.active_bytes).sum();
            let of_driver = of_driver.iter().filter(|of| of.device == device.max(0) as u32);
            let of_driver: u64 = of_driver.map(Segment::active_bytes).sum();
            let active_bytes = of_contexts + of_driver;
            heap::beside_section(|| context.recorder.snapshot_taken(active_bytes));
        }
    }
}

/// Copies the entries before the cut. If a stopped thread holds the lock, the newest cannot be
/// copied, and all count as lost.
fn copy_entries(context: &Context, cut: &mut Cut) -> RingEntries {
    while cut.pack_entries() {
        watchdog::heartbeat();
        let allocator = LockWait::Timeout.lock(&context.allocator);
        if allocator.is_none() {
            cut.lose_entries();
            break;
        }
        context.recorder.copy_entries(cut);
    }
    cut.take_entries()
}

/// Copies the blocks at the cut. Returns `None` if that is no longer possible.
fn copy_blocks(context: &Context, cut: &mut Cut) -> Option<Vec<Block>> {
    while cut.lacks_blocks() {
        watchdog::heartbeat();
        let _allocator = LockWait::Timeout.lock(&context.allocator)?;
        context.recorder.copy_blocks(cut)?;
    }
    cut.take_blocks()
}

/// Gives the segments, which are in order, their blocks. Returns `false` if they do not fit.
fn give_blocks(segments: &mut [Segment], mut blocks: Vec<Block>) -> bool {
    blocks.sort_unstable_by_key(|block| block.address);
    let mut left = &blocks[..];
    for segment in segments {
        let (begin, end) = (segment.address, segment.end());
        let (own, others) = left.split_at(left.partition_point(|block| block.address < end));
        left = others;
        segment.blocks = tiled(begin, end, own.iter().cloned());
        let next = |at: u64, block: &Block| (block.address == at).then(|| at + block.bytes);
        if segment.blocks.iter().try_fold(begin, next) != Some(end) {
            return false;
        }
    }
    left.is_empty()
}

/// Returns the blocks of the thread caches to the core, and records completed frees.
pub(crate) fn empty_lists(context: &Context, allocator: &mut Allocator) {
    blocks::take_back_all(context, allocator);
    context.recorder.completed(allocator);
}

/// Returns the size that the program requested. The core knows the request that first got a block;
/// a thread cache reuses the block without telling the core.
pub(crate) fn requested(block: &BlockView) -> u64 {
    match pagemap::place(block.address.0) {
        Place::Block(live) => live.requested_bytes,
        _ => block.requested_bytes,
    }
}

/// Returns a guard that keeps the context from ending. Returns `None` if the context has ended, or
/// if its end takes longer than `wait_max`.
fn open_within(context: &Context, wait_max: Duration) -> Option<RwLockReadGuard<'_, ()>> {
    let begun = Instant::now();
    loop {
        let open = context.keep_open();
        if open.is_some() || context.is_dead() || begun.elapsed() > wait_max {
            return open;
        }
        watchdog::heartbeat();
        crate::process::library_thread::sleep(Duration::from_micros(50));
    }
}
