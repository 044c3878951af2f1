//! Writes the model itself as JSON, for scripts. docs/command.md describes the keys.

use std::io::{self, Write};

use super::Bounded;
use crate::model::{Action, Block, BlockState, Device, Dropped, Entry, Segment, Snapshot, TextId};
use crate::names::place_key;
use cachealloc_text::Json;

/// Version of the format. It rises when a key changes its meaning or is removed, not when one is
/// added.
const VERSION: u32 = 2;

pub fn json(snapshot: &Snapshot, out: impl Write) -> io::Result<()> {
    let mut json = Json::new(Bounded::new(snapshot, out));
    json.object(|json| {
        json.key("format")?.text("cachealloc-model")?;
        json.key("version")?.number(VERSION)?;
        json.key("settings")?.object(|json| pairs(json, &snapshot.settings.all))?;
        json.key("cachealloc")?.object(|json| pairs(json, &snapshot.settings.ours))?;
        json.key("dropped_entries")?;
        match snapshot.settings.dropped {
            Dropped::Unknown => json.null()?,
            Dropped::Count(count) => json.number(count)?,
        }
        json.key("pools")?.list(&snapshot.pools, |json, pool| {
            json.array(|json| {
                json.number(pool.0)?;
                json.number(pool.1)
            })
        })?;
        json.key("frames")?.list(snapshot.frames.all(), |json, frame| {
            json.line()?;
            let filename = snapshot.texts.get(frame.filename);
            json.object(|json| {
                json.key("name")?.text(snapshot.texts.get(frame.name))?;
                json.key("filename")?.text(filename)?;
                json.key(place_key(filename))?.number(frame.line)
            })
        })?;
        json.key("stacks")?.list(snapshot.stacks.ids(), |json, stack| {
            json.line()?;
            json.list(snapshot.stacks.get(stack), |json, frame| json.number(frame.0))
        })?;
        json.key("devices")?.list(&snapshot.devices, |json, it| device(json, snapshot, it))?;
        json.key("host")?;
        device(json, snapshot, &snapshot.host)?;
        json.key("graphs")?;
        device(json, snapshot, &snapshot.graphs)?;
        json.key("annotations")?.list(&snapshot.annotations, |json, it| {
            json.line()?;
            json.object(|json| {
                json.key("name")?.text(snapshot.texts.get(it.name))?;
                json.key("begin")?.boolean(it.begin)?;
                json.key("device")?.number(it.device)?;
                json.key("time_us")?.number(it.time_us)
            })
        })
    })?;
    json.end()
}

fn pairs<W: Write>(json: &mut Json<W>, pairs: &[(String, String)]) -> io::Result<()> {
    pairs.iter().try_for_each(|(key, value)| json.key(key)?.text(value))
}

fn device<W: Write>(json: &mut Json<W>, snapshot: &Snapshot, device: &Device) -> io::Result<()> {
    json.object(|json| {
        json.key("segments")?.list(&device.segments, |json, it| segment(json, snapshot, it))?;
        json.key("entries")?.list(&device.entries, |json, it| entry(json, snapshot, &it))
    })
}

fn segment<W: Write>(json: &mut Json<W>, snapshot: &Snapshot, segment: &Segment) -> io::Result<()> {
    json.line()?;
    json.object(|json| {
        json.key("address")?.number(segment.address)?;
        json.key("bytes")?.number(segment.bytes)?;
        json.key("stream")?.number(segment.stream)?;
        json.key("small")?.boolean(segment.small)?;
        json.key("pool")?.number(segment.pool.0)?;
        json.key("expandable")?.boolean(segment.expandable)?;
        json.key("stack")?.number(segment.stack.0)?;
        json.key("blocks")?.list(&segment.blocks, |json, it| block(json, snapshot, it))
    })
}

fn block<W: Write>(json: &mut Json<W>, snapshot: &Snapshot, block: &Block) -> io::Result<()> {
    json.object(|json| {
        json.key("address")?.number(block.address)?;
        json.key("bytes")?.number(block.bytes)?;
        json.key("requested_bytes")?.number(block.requested_bytes)?;
        json.key("state")?.text(match block.state {
            BlockState::Allocated => "allocated",
            BlockState::Pending => "pending",
            BlockState::Free => "free",
        })?;
        json.key("stack")?.number(block.stack.0)?;
        match snapshot.texts.get(block.category) {
            "" => Ok(()),
            category => json.key("category")?.text(category),
        }
    })
}

fn entry<W: Write>(json: &mut Json<W>, snapshot: &Snapshot, entry: &Entry) -> io::Result<()> {
    json.line()?;
    json.object(|json| {
        json.key("action")?.text(action_name(entry.action))?;
        json.key("time_us")?.number(entry.time_us)?;
        json.key("address")?.number(entry.address)?;
        json.key("bytes")?.number(entry.bytes)?;
        json.key("stream")?.number(entry.stream)?;
        json.key("stack")?.number(entry.stack.0)?;
        json.key("pool")?.number(entry.pool.0)?;
        // Most entries have none of these.
        let texts: [(&str, TextId); 3] = [
            ("category", entry.category),
            ("compile_context", entry.compile_context),
            ("user_metadata", entry.user_metadata),
        ];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            json.key(key)?.text(snapshot.texts.get(text))?;
        }
        if entry.entered > 0 {
            json.key("range_entered")?.number(entry.entered)?;
        }
        Ok(())
    })
}

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::Free => "free",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::OutOfMemory => "out_of_memory",
        Action::Snapshot => "snapshot",
        Action::Annotate => "annotate",
        Action::Other => "other",
    }
}
