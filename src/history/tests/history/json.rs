//! The same snapshot as JSON, written from the description of the schema alone, as the other half
//! of a comparison: nothing here is shared, batched or remembered.

use std::fmt::Write;

use cachealloc_history::{
    Action, Block, BlockState, Describe, Device, Entry, HOST_DEVICE, PoolKind, Segment, Settings,
    Snapshot, StackId,
};

pub fn snapshot(snapshot: &Snapshot, describe: &mut dyn Describe) -> String {
    let segments = list(&snapshot.segments, |of| segment(of, describe));
    let dropped: u64 = snapshot.devices.iter().map(|device| device.dropped_count).sum();
    let dropped = dropped + snapshot.host.dropped_count;
    let mut of_device = |number: u32, device: &Device| {
        let mut written = Vec::new();
        for entry in &device.entries {
            match entry.action {
                Action::Free => {
                    written.push(Entry { action: Action::FreeRequested, ..*entry });
                    written.push(Entry { action: Action::FreeCompleted, ..*entry });
                }
                _ => written.push(*entry),
            }
        }
        list(&written, |entry| self::entry(number, entry, snapshot, describe))
    };
    let devices: Vec<_> = (0..).zip(&snapshot.devices).collect();
    let traces = list(&devices, |(number, device)| of_device(*number, device));
    let host_traces = of_device(HOST_DEVICE, &snapshot.host);
    let host_segments = list(&snapshot.host_segments, |of| segment(of, describe));
    format!(
        r#"{{"segments": {segments}, "device_traces": {traces}, "external_annotations": [],
        "host_segments": {host_segments}, "host_traces": {host_traces}, "allocator_settings": {}}}"#,
        settings(&snapshot.settings, dropped)
    )
}

fn segment(segment: &Segment, describe: &mut dyn Describe) -> String {
    let blocks = |of: fn(&Block) -> bool| segment.blocks.iter().filter(move |block| of(block));
    let allocated = blocks(|block| block.state == BlockState::Allocated);
    let allocated: u64 = allocated.map(|block| block.bytes).sum();
    let is_active = |block: &Block| block.state != BlockState::Free;
    let active: u64 = blocks(is_active).map(|block| block.bytes).sum();
    let requested: u64 = blocks(is_active).map(|block| block.requested_bytes).sum();
    format!(
        r#"{{"device": {}, "address": {}, "total_size": {}, "allocated_size": {allocated},
        "active_size": {active}, "requested_size": {requested}, "stream": {},
        "segment_type": {:?}, "segment_pool_id": [{}, {}], "is_expandable": {},
        "frames": {}, "blocks": {}}}"#,
        if segment.device == HOST_DEVICE { -1 } else { i64::from(segment.device) },
        segment.address,
        segment.bytes,
        segment.stream,
        if segment.kind == PoolKind::Large { "large" } else { "small" },
        segment.pool_id.0,
        segment.pool_id.1,
        segment.expandable,
        frames(segment.stack, describe),
        list(&segment.blocks, |of| block(of, describe)),
    )
}

fn block(block: &Block, describe: &mut dyn Describe) -> String {
    let state = match block.state {
        BlockState::Allocated => "active_allocated",
        BlockState::Pending => "active_pending_free",
        BlockState::Free => "inactive",
    };
    let mut text = format!(
        r#"{{"address": {}, "size": {}, "requested_size": {}, "state": "{state}", "frames": {}"#,
        block.address,
        block.bytes,
        block.requested_bytes,
        frames(block.stack, describe),
    );
    if block.stack != StackId::NONE {
        let category = describe.category(block.stack);
        if !category.is_empty() {
            let _ = write!(text, r#", "category": {}"#, string(&category));
        }
    }
    text + "}"
}

fn entry(device: u32, entry: &Entry, snapshot: &Snapshot, describe: &mut dyn Describe) -> String {
    let action = match entry.action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::Free => unreachable!(),
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::OutOfMemory => "oom",
        Action::Snapshot => "snapshot",
    };
    // The model never reuses an address, and free memory has no entry.
    let around = snapshot.segments.iter().find(|segment| {
        let is_in = (segment.address..segment.address + segment.bytes).contains(&entry.address);
        let is_since = segment.pool_since_ns.is_some_and(|since_ns| since_ns <= entry.time_ns);
        segment.device == device && is_in && is_since
    });
    let pool = around.map_or((0, 0), |segment| segment.pool_id);
    let clock = snapshot.clock;
    let since_us = (entry.time_ns as f64 - clock.time_ns as f64) / 1000.0;
    let mut text = format!(
        r#"{{"action": "{action}", "{}": {}, "size": {}, "stream": {}, "time_us": {},
        "compile_context": "N/A", "user_metadata": "", "pool_id": [{}, {}]"#,
        if action == "oom" { "device_free" } else { "addr" },
        entry.address,
        entry.bytes,
        entry.stream,
        clock.epoch_us as i64 + since_us.floor() as i64,
        pool.0,
        pool.1,
    );
    if entry.stack != StackId::NONE {
        let _ = write!(text, r#", "frames": {}"#, frames(entry.stack, describe));
        let category = describe.category(entry.stack);
        let has_history = snapshot.devices.iter().any(|device| device.recorded_from_start);
        if !category.is_empty() && action != "free_completed" && has_history {
            let _ = write!(text, r#", "category": {}"#, string(&category));
        }
    }
    text + "}"
}

fn frames(stack: StackId, describe: &mut dyn Describe) -> String {
    let frames = if stack == StackId::NONE { Vec::new() } else { describe.frames(stack) };
    list(&frames, |frame| {
        let (name, filename) = (string(&frame.name), string(&frame.filename));
        format!(r#"{{"name": {name}, "filename": {filename}, "line": {}}}"#, frame.line)
    })
}

fn settings(settings: &Settings, dropped: u64) -> String {
    let of = settings.roundup_power2_divisions.iter().enumerate().collect::<Vec<_>>();
    let divisions = list(&of, |(power, number)| format!(r#""{}": {number}"#, 1 << power));
    let more = list(&settings.more, |(name, value)| format!("{}: {}", string(name), string(value)));
    format!(
        r#"{{"PYTORCH_CUDA_ALLOC_CONF": {}, "max_split_size": {},
        "garbage_collection_threshold": {:?}, "expandable_segments": {},
        "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": false,
        "pinned_use_cuda_host_register": false, "graph_capture_record_stream_reuse": {},
        "max_round_threshold": 0, "max_cached_size": 0,
        "roundup_power2_divisions": {{{}}},
        "trace_alloc_overflowed": {}, "trace_alloc_max_entries": {},
        "trace_alloc_dropped": {dropped},
        "cachealloc": {{{}}}}}"#,
        string(&settings.configuration),
        settings.split_bytes_max.map_or(-1, |bytes| bytes as i64),
        settings.garbage_collection_threshold,
        settings.expandable_segments,
        settings.graph_capture_record_stream_reuse,
        divisions.trim_matches(['[', ']']),
        dropped > 0,
        settings.entries_max,
        more.trim_matches(['[', ']']),
    )
}

fn list<T>(items: &[T], text: impl FnMut(&T) -> String) -> String {
    format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}
