//! Folded stacks for flamegraph.pl and inferno: one line per stack, outermost frame first, and its
//! weight.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{Bounded, NO_STACK, weighted};
use crate::model::{Snapshot, StackId};
use cachealloc_text::plain;

use crate::names::label;
use crate::{SiteKey, When};

/// If there are several devices, each stack starts with a frame that names its device.
pub fn folded(snapshot: &Snapshot, by: SiteKey, when: When, out: impl Write) -> io::Result<()> {
    let mut out = Bounded::new(snapshot, out);
    let frame_names = snapshot.frames.all().iter();
    let frame_names: Vec<String> =
        frame_names.map(|frame| without_separators(&label(&snapshot.texts, frame))).collect();
    let weighted = weighted(snapshot, by, when);
    let several = weighted.iter().any(|it| it.device != weighted[0].device);
    let mut lines: Vec<((u32, StackId), u64)> = Vec::new();
    let mut indices = HashMap::new();
    for it in &weighted {
        // One stack may have allocated for several libraries.
        let key = (it.device, it.stack);
        let index = *indices.entry(key).or_insert_with(|| {
            lines.push((key, 0));
            lines.len() - 1
        });
        lines[index].1 = lines[index].1.saturating_add(it.weight);
    }
    for ((device, stack), weight) in lines {
        if several {
            write!(out, "device {device};")?;
        }
        let frames = snapshot.stacks.get(stack).iter().rev();
        for (index, frame) in frames.enumerate() {
            let separator = if index == 0 { "" } else { ";" };
            write!(out, "{separator}{}", frame_names[frame.0 as usize])?;
        }
        let nothing = if snapshot.stacks.get(stack).is_empty() { NO_STACK } else { "" };
        writeln!(out, "{nothing} {weight}")?;
    }
    out.flush()
}

/// Replaces the separators of the format: `;` between frames, a line break between stacks.
fn without_separators(name: &str) -> String {
    plain(&name.replace(';', ":").replace(['\n', '\r'], " ")).into_owned()
}
