//! A line for each stack, outermost frame first, and what it weighs: for flamegraph.pl and inferno.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{NO_STACK, weighted};
use crate::model::{Snapshot, StackId};
use crate::names::{label, plain};
use crate::{By, When};

/// Several devices come apart by a frame of their own.
pub fn folded(snapshot: &Snapshot, by: By, when: When, mut out: impl Write) -> io::Result<()> {
    let weighted = weighted(snapshot, by, when);
    let several = weighted.iter().any(|it| it.device != weighted[0].device);
    let mut lines: Vec<((u32, StackId), u64)> = Vec::new();
    let mut indices = HashMap::new();
    for it in &weighted {
        // One stack may have asked for several libraries.
        let key = (it.device, it.stack);
        let index = *indices.entry(key).or_insert_with(|| {
            lines.push((key, 0));
            lines.len() - 1
        });
        lines[index].1 = lines[index].1.saturating_add(it.weight);
    }
    for ((device, stack), weight) in lines {
        let frames = snapshot.frames_of(stack).rev();
        let mut names: Vec<String> =
            frames.map(|frame| without_separators(&label(&snapshot.texts, frame))).collect();
        if names.is_empty() {
            names.push(NO_STACK.into());
        }
        if several {
            names.insert(0, format!("GPU {device}"));
        }
        writeln!(out, "{} {weight}", names.join(";"))?;
    }
    out.flush()
}

/// A semicolon ends a frame, and a line end the stack.
fn without_separators(name: &str) -> String {
    plain(&name.replace(';', ":").replace(['\n', '\r'], " ")).into_owned()
}
