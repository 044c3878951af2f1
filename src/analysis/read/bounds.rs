//! Limits the size of the output relative to the file.
//!
//! A file may refer to one text any number of times, in two bytes each. The model shares the text
//! as the file does, but output such as JSON repeats it. So a file whose output would be out of
//! proportion is refused. Everything done with a snapshot then stays within a constant multiple of
//! its file.

use std::collections::HashMap;

use super::nodes::Result;
use crate::model::{Snapshot, TextId};

/// Largest size of the repeated texts as a multiple of the file size. Recordings need less than ten
/// times.
const TIMES_MAX: u64 = 64;
/// Size that is always allowed, however small the file is.
const BYTES_LEAST: u64 = 16 << 20;

pub(super) fn check_size(bytes: u64, file_bytes: u64) -> Result<()> {
    if bytes <= BYTES_LEAST.saturating_add(file_bytes.saturating_mul(TIMES_MAX)) {
        return Ok(());
    }
    Err(format!(
        "it repeats long texts: expanded, they are more than {TIMES_MAX} times as large as the file"
    ))
}

/// Checks the size of all texts that are written out with frames, entries and blocks.
pub(super) fn check(snapshot: &Snapshot, file_bytes: u64) -> Result<()> {
    let length = |text: TextId| snapshot.texts.get(text).len() as u64;
    let mut bytes = 0u64;
    let mut add = |length: u64| bytes = bytes.saturating_add(length);
    for frame in snapshot.frames.all() {
        add(length(frame.name).saturating_add(length(frame.filename)));
    }
    // Most texts are few, and used a million times.
    let mut counts: HashMap<TextId, u64> = HashMap::new();
    for device in snapshot.devices.iter().chain([&snapshot.host, &snapshot.graphs]) {
        for entry in &device.entries {
            for text in [entry.category, entry.compile_context, entry.user_metadata] {
                if !text.is_empty() {
                    *counts.entry(text).or_default() += 1;
                }
            }
        }
        let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
        for block in blocks.filter(|block| !block.category.is_empty()) {
            *counts.entry(block.category).or_default() += 1;
        }
    }
    for annotation in &snapshot.annotations {
        *counts.entry(annotation.name).or_default() += 1;
    }
    for (text, count) in counts {
        add(length(text).saturating_mul(count));
    }
    check_size(bytes, file_bytes)
}
