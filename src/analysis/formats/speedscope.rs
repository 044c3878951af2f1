//! speedscope's file format: <https://www.speedscope.app/file-format-schema.json>.

use std::io::{self, Write};

use super::{Bounded, NO_STACK, Weighted, weighted};
use crate::model::Snapshot;
use crate::names::{is_source, short_name};
use crate::{SiteKey, When};
use cachealloc_text::Json;

const PROFILES: [(&str, SiteKey, When); 3] = [
    ("held at the peak", SiteKey::Live, When::Peak),
    ("held at the end", SiteKey::Live, When::End),
    ("allocated", SiteKey::Allocated, When::End),
];

/// Writes three profiles per device: memory held at its peak, held at the end, and everything
/// allocated.
pub fn speedscope(snapshot: &Snapshot, name: &str, out: impl Write) -> io::Result<()> {
    let mut json = Json::new(Bounded::new(snapshot, out));
    json.object(|json| {
        json.key("$schema")?.text("https://www.speedscope.app/file-format-schema.json")?;
        json.key("name")?.text(name)?;
        json.key("exporter")?.text(concat!("cachealloc@", env!("CARGO_PKG_VERSION")))?;
        json.key("activeProfileIndex")?.number(0)?;
        json.key("shared")?
            .object(|json| json.key("frames").and_then(|it| frames(it, snapshot)))?;
        json.key("profiles")?.array(|json| profiles(json, snapshot))
    })?;
    json.end()
}

/// Writes all frames by id, and one more for empty stacks.
fn frames<W: Write>(json: &mut Json<W>, snapshot: &Snapshot) -> io::Result<()> {
    json.array(|json| {
        for frame in snapshot.frames.all() {
            json.line()?;
            let name = short_name(snapshot.texts.get(frame.name));
            let file = snapshot.texts.get(frame.filename);
            json.object(|json| {
                if is_source(file) {
                    json.key("name")?.text(&name)?;
                    json.key("file")?.text(file)?;
                    return json.key("line")?.number(frame.line);
                }
                let label = crate::names::label(&snapshot.texts, frame);
                json.key("name")?.text(&label)?;
                json.key("file")?.text(file)
            })?;
        }
        json.object(|json| json.key("name")?.text(NO_STACK))
    })
}

fn profiles<W: Write>(json: &mut Json<W>, snapshot: &Snapshot) -> io::Result<()> {
    for (name, by, when) in PROFILES {
        let all = weighted(snapshot, by, when);
        for (ordinal, _) in snapshot.devices.iter().enumerate() {
            // Ordered by device.
            let begin = all.partition_point(|it| (it.device as usize) < ordinal);
            let end = all.partition_point(|it| it.device as usize <= ordinal);
            let of_device = &all[begin..end];
            // speedscope requires at least one profile, so an empty one is written too.
            json.line()?;
            profile(json, snapshot, &format!("device {ordinal}: {name}"), of_device)?;
        }
    }
    Ok(())
}

fn profile<W: Write>(
    json: &mut Json<W>,
    snapshot: &Snapshot,
    name: &str,
    weighted: &[Weighted],
) -> io::Result<()> {
    let sum = weighted.iter().fold(0u64, |sum, it| sum.saturating_add(it.weight));
    json.object(|json| {
        json.key("type")?.text("sampled")?;
        json.key("name")?.text(name)?;
        json.key("unit")?.text("bytes")?;
        json.key("startValue")?.number(0)?;
        json.key("endValue")?.number(sum)?;
        json.key("samples")?.list(weighted, |json, it| {
            let stack = snapshot.stacks.get(it.stack);
            json.array(|json| {
                if stack.is_empty() {
                    return json.number(snapshot.frames.all().len());
                }
                stack.iter().rev().try_for_each(|frame| json.number(frame.0))
            })
        })?;
        json.key("weights")?.list(weighted, |json, it| json.number(it.weight))
    })
}
