//! Builds the model from the values that were read: assigns lists to devices, merges the two
//! entries of a free, and orders addresses.

use std::mem;

use super::bounds;
use super::dicts::{NO_ADDRESS, completes};
use super::error::ReadError;
use super::nodes::{self, Nodes};
use super::value::{List, Value};
use super::words;
use crate::model::{
    Action, Annotation, Device, Dropped, Entries, Entry, Segment, Settings, Snapshot, TextId,
};

/// Builds a snapshot from `top`, the value that the pickle leaves.
pub(super) fn snapshot(mut nodes: Nodes, top: Value) -> Result<Snapshot, ReadError> {
    let assembled = match top {
        Value::Map(map) => from_dict(&mut nodes, map),
        // The result of `torch.cuda.memory_snapshot()`, and the only form before 2023.
        Value::List(_) => segments_only(&mut nodes, top),
        value => Err(format!("it holds {}", value.kind())),
    };
    let mut snapshot = assembled.map_err(ReadError::NoSnapshot)?;
    snapshot.texts = nodes.texts;
    snapshot.frames = nodes.frames;
    snapshot.stacks = nodes.stacks;
    snapshot.pools = nodes.pools;
    snapshot.file_bytes = nodes.read_bytes;
    bounds::check(&snapshot, nodes.read_bytes).map_err(ReadError::NoSnapshot)?;
    Ok(snapshot)
}

fn from_dict(nodes: &mut Nodes, map: u32) -> nodes::Result<Snapshot> {
    let get = |nodes: &Nodes, key| nodes.get(map, key);
    if get(nodes, words::SEGMENTS).is_none() && get(nodes, words::DEVICE_TRACES).is_none() {
        return Err("it is a dict without `segments` or `device_traces`".into());
    }
    let mut snapshot = Snapshot::default();
    for key in [words::SEGMENTS, words::HOST_SEGMENTS, words::GRAPH_SEGMENTS] {
        if let Some(list) = get(nodes, key) {
            add_segments(nodes, list, key, &mut snapshot)
                .map_err(|what| within(nodes, key, what))?;
        }
    }
    if let Some(list) = get(nodes, words::DEVICE_TRACES) {
        let lists = nodes.take(list)?;
        let what_of = |what| within(nodes, words::DEVICE_TRACES, what);
        check_ordinal(lists.len().saturating_sub(1)).map_err(what_of)?;
        for (ordinal, list) in lists.into_iter().enumerate() {
            let entries = entries(nodes, list);
            device(&mut snapshot, ordinal).entries =
                entries.map_err(|what| within(nodes, words::DEVICE_TRACES, what))?;
        }
    }
    if let Some(list) = get(nodes, words::HOST_TRACES) {
        snapshot.host.entries =
            host_entries(nodes, list).map_err(|what| within(nodes, words::HOST_TRACES, what))?;
    }
    if let Some(list) = get(nodes, words::EXTERNAL_ANNOTATIONS) {
        snapshot.annotations = annotations(nodes, list)?;
    }
    if let Some(Value::Map(map)) = get(nodes, words::ALLOCATOR_SETTINGS) {
        snapshot.settings = settings(nodes, map)?;
    }
    Ok(snapshot)
}

fn segments_only(nodes: &mut Nodes, list: Value) -> nodes::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    add_segments(nodes, list, words::SEGMENTS, &mut snapshot)?;
    Ok(snapshot)
}

fn add_segments(
    nodes: &mut Nodes,
    list: Value,
    key: TextId,
    snapshot: &mut Snapshot,
) -> nodes::Result<()> {
    for item in nodes.take(list)? {
        let Value::Segment(index) = nodes.resolve(item) else {
            return Err(format!(
                "{} was found in the list of segments",
                nodes.resolve(item).kind()
            ));
        };
        // A segment that is in two lists is empty in the second: its blocks were moved to the
        // first.
        let (ordinal, segment) = &mut nodes.segments[index as usize];
        let blocks = mem::take(&mut segment.blocks);
        let segment = in_order(Segment { blocks, ..segment.clone() });
        let of = match usize::try_from(*ordinal) {
            _ if key == words::GRAPH_SEGMENTS => &mut snapshot.graphs,
            Ok(ordinal) => {
                check_ordinal(ordinal)?;
                device(snapshot, ordinal)
            }
            Err(_) => &mut snapshot.host,
        };
        of.segments.push(segment);
    }
    let others = [&mut snapshot.host, &mut snapshot.graphs];
    for device in snapshot.devices.iter_mut().chain(others) {
        device.segments.sort_by_key(|segment| segment.address);
    }
    Ok(())
}

fn in_order(mut segment: Segment) -> Segment {
    let mut end = segment.address;
    for block in &mut segment.blocks {
        if block.address == NO_ADDRESS {
            block.address = end;
        }
        end = block.address.saturating_add(block.bytes);
    }
    segment.blocks.sort_by_key(|block| block.address);
    segment
}

fn device(snapshot: &mut Snapshot, ordinal: usize) -> &mut Device {
    if snapshot.devices.len() <= ordinal {
        snapshot.devices.resize_with(ordinal + 1, Device::default);
    }
    &mut snapshot.devices[ordinal]
}

/// Largest device ordinal. No machine has so many devices, and a wrong number must not cost memory.
const ORDINAL_MAX: usize = 1023;

fn check_ordinal(ordinal: usize) -> nodes::Result<()> {
    if ordinal > ORDINAL_MAX {
        return Err(format!("device number {ordinal} is above {ORDINAL_MAX}"));
    }
    Ok(())
}

fn entries(nodes: &mut Nodes, list: Value) -> nodes::Result<Entries> {
    Ok(with_whole_frees(listed(nodes, list)?))
}

fn listed(nodes: &mut Nodes, list: Value) -> nodes::Result<Entries> {
    if let Value::List(id) = list
        && let List::Entries(numbers) = &nodes.lists[id as usize]
    {
        let numbers = numbers.start as usize..numbers.end as usize;
        nodes.lists[id as usize] = List::Taken;
        if numbers == (0..nodes.entries.len()) && !nodes.any_list_has_entries() {
            // The usual case of one device: the entries need no copy.
            return Ok(mem::take(&mut nodes.entries));
        }
        if numbers.end > nodes.entries.len() {
            return Err(SHARED.into());
        }
        return Ok(nodes.entries.range(numbers).collect());
    }
    let items = nodes.take(list)?;
    entries_of(nodes, &items)
}

const SHARED: &str = "an entry is shared by two lists";

fn entries_of(nodes: &Nodes, items: &[Value]) -> nodes::Result<Entries> {
    let mut entries = Entries::default();
    let mut before = Value::Nothing;
    for &item in items {
        let item = nodes.resolve(item);
        let (number, action) = match item {
            // Set by its completion, if that is in this list.
            Value::Entry(number) => (number, Action::FreeRequested),
            Value::Completion(number) => (number, Action::FreeCompleted),
            value => return Err(format!("{} was found in the list of entries", value.kind())),
        };
        let entry = nodes.entries.get(number as usize).ok_or(SHARED)?;
        let action = if entry.action == Action::Free { action } else { entry.action };
        match entries.last() {
            Some(request)
                if item == Value::Completion(number) && before == Value::Entry(number) =>
            {
                entries.set(entries.len() - 1, Entry { action: Action::Free, ..request });
            }
            _ => entries.push(Entry { action, ..entry }),
        }
        before = item;
    }
    Ok(entries)
}

/// Merges the two entries of a free that was requested and completed at once.
fn with_whole_frees(mut entries: Entries) -> Entries {
    entries.merge(|first, second| {
        completes(&first, &second).then_some(Entry { action: Action::Free, ..first })
    });
    entries
}

/// Reads the entries of the host. PyTorch has written them as one list, and as a list of lists.
fn host_entries(nodes: &mut Nodes, list: Value) -> nodes::Result<Entries> {
    let is_list = |value| matches!(value, Value::List(_) | Value::EmptyList);
    let items = match list {
        Value::List(id) if matches!(nodes.lists[id as usize], List::Entries(_)) => {
            return entries(nodes, list);
        }
        list => nodes.take(list)?,
    };
    if !items.iter().any(|&item| is_list(nodes.resolve(item))) {
        return Ok(with_whole_frees(entries_of(nodes, &items)?));
    }
    let mut all = Entries::default();
    for item in items {
        match nodes.resolve(item) {
            list if is_list(list) => all.extend(&listed(nodes, list)?),
            item => all.extend(&entries_of(nodes, &[item])?),
        }
    }
    Ok(with_whole_frees(all))
}

fn annotations(nodes: &mut Nodes, list: Value) -> nodes::Result<Vec<Annotation>> {
    let mut annotations = Vec::new();
    for item in nodes.take(list)? {
        let Value::Map(map) = nodes.resolve(item) else { continue };
        let Some(Value::Text(name)) = nodes.get(map, words::NAME) else { continue };
        let number = |key| match nodes.get(map, key) {
            Some(Value::Number(number)) => number,
            _ => 0,
        };
        annotations.push(Annotation {
            name,
            begin: nodes.get(map, words::STAGE) == Some(Value::Text(words::START)),
            device: u32::try_from(number(words::DEVICE)).unwrap_or(0),
            time_us: number(words::TIME_US),
        });
    }
    Ok(annotations)
}

fn settings(nodes: &mut Nodes, map: u32) -> nodes::Result<Settings> {
    let mut settings = Settings::default();
    for index in 0..nodes.pairs(map).len() {
        let (key, value) = nodes.pairs(map)[index];
        match (key, nodes.resolve(value)) {
            (Value::Text(words::CACHEALLOC), Value::Map(ours)) => {
                settings.ours = texts_of(nodes, ours)?;
            }
            (Value::Text(words::TRACE_ALLOC_DROPPED), Value::Number(count)) => {
                settings.dropped = Dropped::Count(count);
            }
            (key, value) => settings.all.push((nodes.plain(key)?, nodes.plain(value)?)),
        }
    }
    Ok(settings)
}

fn texts_of(nodes: &mut Nodes, map: u32) -> nodes::Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for index in 0..nodes.pairs(map).len() {
        let (key, value) = nodes.pairs(map)[index];
        texts.push((nodes.plain(key)?, nodes.plain(value)?));
    }
    Ok(texts)
}

fn within(nodes: &Nodes, key: TextId, what: String) -> String {
    format!("in `{}`, {what}", nodes.texts.get(key))
}
