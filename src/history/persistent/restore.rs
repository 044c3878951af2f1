//! Makes a snapshot from the file that a killed process left, as of the last moment.

use std::collections::BTreeMap;

use super::layout::*;
use super::read::{Leftover, Owner};
use crate::check::Problem;
use crate::entry::{Action, Entry};
use crate::merge_rings::RingMerge;
use crate::ring::copy::RingEntries;
use crate::snapshot::{
    Block, BlockState, Clock, Device, PoolKind, Segment, Settings, Snapshot, tiled,
};

/// A snapshot, and facts that it does not contain.
pub struct Restored {
    pub snapshot: Snapshot,
    /// Last known time by the monotonic clock: the process was killed then or later.
    pub last_ns: u64,
}

/// Block sizes are multiples of this.
const GRAIN_BYTES: u64 = 512;
/// Recording level at which entries are recorded.
const ALL: u64 = 2;

/// Restores a snapshot.
///
/// # Errors
///
/// Fails if the contents of the file are inconsistent.
pub fn restore(leftover: &Leftover) -> Result<Restored, Problem> {
    let mut gather = RingMerge::new(leftover.from_start && leftover.level == ALL);
    let mut snapshot = Snapshot {
        settings: settings(leftover),
        clock: Clock { ..leftover.clock },
        ..Snapshot::default()
    };
    let mut last_ns = 0;
    for owner in &leftover.owners {
        let mut state = State::of(owner);
        if let Some(last) = owner.entries.last() {
            last_ns = last_ns.max(last.time_ns);
            if owner.last_is_whole {
                state.do_again(last);
            }
        }
        let dropped_count = if leftover.level == ALL { owner.dropped_count } else { 0 };
        let entries = owner.entries.iter().collect();
        gather.add(owner.device, RingEntries { entries, dropped_count, lost_until_ns: 0 });
        snapshot.add(state.segments(owner.device)?);
    }
    let (devices, host) = gather.finish(leftover.entries_max);
    snapshot.devices = devices.into_iter().map(Device::unpacked).collect();
    snapshot.host = host.unpacked();
    snapshot.sort();
    snapshot.check()?;
    Ok(Restored { snapshot, last_ns })
}

/// State of an owner, by address.
struct State {
    is_foreign: bool,
    blocks: BTreeMap<u64, BlockRow>,
    segments: BTreeMap<u64, SegmentRow>,
}

impl State {
    fn of(owner: &Owner) -> State {
        State {
            is_foreign: owner.is_foreign,
            blocks: owner.blocks.iter().map(|row| (row.address, *row)).collect(),
            segments: owner.segments.iter().map(|row| (row.address, *row)).collect(),
        }
    }

    /// Applies the entry, whether or not its row had already been changed.
    fn do_again(&mut self, entry: &Entry) {
        let Entry { address, bytes, stream, stack, .. } = *entry;
        let block = self.blocks.get_mut(&address);
        let segment = self.segments.get_mut(&address);
        match (entry.action, block, segment) {
            (Action::Alloc, _, Some(segment)) if self.is_foreign => {
                segment.stack = stack;
                segment.flags |= IS_BLOCK;
            }
            (Action::Alloc, None, _) => {
                let row = BlockRow {
                    address,
                    bytes: self.room_at(address, bytes),
                    requested_bytes: bytes,
                    stream,
                    stack,
                    state: LIVE,
                };
                self.blocks.insert(address, row);
            }
            (Action::FreeRequested, Some(block), _) => block.state = PENDING,
            (Action::Free | Action::FreeCompleted, block, segment) => {
                if let Some(segment) = segment {
                    segment.flags &= !IS_BLOCK;
                }
                if block.is_some() {
                    self.blocks.remove(&address);
                }
            }
            (Action::SegmentAlloc | Action::SegmentMap, _, None) => {
                let map = entry.action == Action::SegmentMap;
                let flags = IS_THERE | if map { IS_EXPANDABLE } else { 0 };
                let row = SegmentRow { address, bytes, stream, pool_id: 0, stack, flags };
                self.segments.insert(address, row);
            }
            (Action::SegmentFree, _, Some(_)) => _ = self.segments.remove(&address),
            (Action::SegmentUnmap, ..) => _ = take_out(&mut self.segments, address, bytes),
            _ => {}
        }
    }

    /// Returns the size of the block that serves a request of so many bytes.
    fn room_at(&self, address: u64, bytes: u64) -> u64 {
        let rounded = bytes.max(1).checked_next_multiple_of(GRAIN_BYTES).unwrap_or(bytes);
        let around = self.segments.range(..=address).next_back();
        let end = around.map(|(_, segment)| segment.address.saturating_add(segment.bytes));
        let next = self.blocks.range(address.saturating_add(1)..).next().map(|(next, _)| *next);
        let end = [end, next].into_iter().flatten().min().unwrap_or(u64::MAX);
        rounded.min(end.saturating_sub(address)).max(bytes)
    }

    fn segments(mut self, device: u32) -> Result<Vec<Segment>, Problem> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut joined: Vec<SegmentRow> = Vec::new();
        for (_, row) in std::mem::take(&mut self.segments) {
            match joined.last_mut() {
                Some(last) if joins(last, &row) => last.bytes += row.bytes,
                Some(last) if last.address.saturating_add(last.bytes) > row.address => {
                    let place = format!("segment at {:#x}", row.address);
                    let what = format!("overlaps the one at {:#x}", last.address);
                    return Err(Problem { invariant: 1, place, what });
                }
                _ => joined.push(row),
            }
        }
        for row in joined {
            let end = row.address.saturating_add(row.bytes);
            let blocks = self.blocks.range(row.address..end).map(|(_, row)| block(row));
            let whole = (row.flags & IS_BLOCK != 0).then_some(Block {
                address: row.address,
                bytes: row.bytes,
                requested_bytes: row.bytes,
                state: BlockState::Allocated,
                stack: row.stack,
            });
            let blocks = tiled(row.address, end, blocks.chain(whole));
            let is = |flag| row.flags & flag != 0;
            segments.push(Segment {
                device,
                address: row.address,
                bytes: row.bytes,
                stream: row.stream,
                kind: if is(IS_SMALL) { PoolKind::Small } else { PoolKind::Large },
                pool_id: (row.pool_id, 0),
                pool_since_ns: None,
                expandable: is(IS_EXPANDABLE),
                stack: row.stack,
                blocks,
            });
        }
        Ok(segments)
    }
}

/// Removes a range from the mapped memory. Returns each segment that the range overlapped, with the
/// up to two segments that remain of it.
pub fn take_out(
    segments: &mut BTreeMap<u64, SegmentRow>,
    address: u64,
    bytes: u64,
) -> Vec<(SegmentRow, Vec<SegmentRow>)> {
    let end = address.saturating_add(bytes);
    let touched: Vec<SegmentRow> = segments
        .range(..end)
        .rev()
        .map(|(_, row)| *row)
        .take_while(|row| row.address.saturating_add(row.bytes) > address)
        .collect();
    let split = |row: SegmentRow| {
        let row_end = row.address.saturating_add(row.bytes);
        let ranges = [(row.address, address), (end, row_end)].into_iter();
        let left = ranges.filter(|(from, to)| from < to);
        (
            row,
            left.map(|(from, to)| SegmentRow { address: from, bytes: to - from, ..row }).collect(),
        )
    };
    let touched: Vec<(SegmentRow, Vec<SegmentRow>)> = touched.into_iter().map(split).collect();
    for (row, left) in &touched {
        segments.remove(&row.address);
        segments.extend(left.iter().map(|row| (row.address, *row)));
    }
    touched
}

/// Returns whether two ranges form one segment: adjacent mapped memory of one kind does.
fn joins(left: &SegmentRow, right: &SegmentRow) -> bool {
    let kind = |row: &SegmentRow| (row.flags, row.stream, row.pool_id);
    left.flags & IS_EXPANDABLE != 0
        && kind(left) == kind(right)
        && left.address.saturating_add(left.bytes) == right.address
}

fn block(row: &BlockRow) -> Block {
    let pending = row.state == PENDING;
    Block {
        address: row.address,
        bytes: row.bytes,
        requested_bytes: row.requested_bytes,
        state: if pending { BlockState::Pending } else { BlockState::Allocated },
        stack: row.stack,
    }
}

/// Returns the settings that the process recorded at its start. The library's keys are listed as
/// `SETTING_*`.
fn settings(leftover: &Leftover) -> Settings {
    let value = |key: &str| {
        let found = leftover.settings.iter().rev().find(|(name, _)| name == key);
        found.map_or("", |(_, value)| value.as_str())
    };
    let more = leftover.settings.iter().filter(|(key, _)| !key.starts_with(SETTING_OWN));
    let mut more: Vec<_> = more.cloned().collect();
    more.push(("recorded_from_start".to_string(), leftover.from_start.to_string()));
    more.push(("taken".to_string(), "recovered".to_string()));
    Settings {
        configuration: value(SETTING_CONFIGURATION).to_string(),
        split_bytes_max: value(SETTING_SPLIT_MAX).parse().ok(),
        garbage_collection_threshold: value(SETTING_COLLECTED_ABOVE).parse().unwrap_or(0.0),
        expandable_segments: value(SETTING_EXPANDABLE) == "true",
        roundup_power2_divisions: std::array::from_fn(|index| {
            let divisions = value(SETTING_ROUNDUP).split(',').nth(index);
            divisions.and_then(|number| number.parse().ok()).unwrap_or(0)
        }),
        graph_capture_record_stream_reuse: value(SETTING_CAPTURE_REUSE) == "true",
        entries_max: leftover.entries_max,
        more,
    }
}
