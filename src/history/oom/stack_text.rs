//! A stack in the out-of-memory report: the frames that tell a person where the request comes from.

use std::fmt::{self, Write};
use std::sync::Arc;

use cachealloc_text::{cut, plain};

use crate::entry::StackId;
use crate::frame_kind::{FrameKind, frame_kind, least_of_callers, site_index};
use crate::frames::{Describe, Frame, is_source, place, without_start};
use crate::short::{short_name, short_path};
use crate::sites::Site;

/// Maximum number of frames shown of a stack.
const FRAMES_COUNT_MAX: usize = 6;
const CHARS_MAX: usize = 100;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StackText {
    /// Library that asked for the memory, or `without a stack`. Empty if it is unknown.
    pub heading: String,
    /// The site of the stack and its callers, innermost first, one line each.
    frames: Vec<String>,
    omitted_count: usize,
}

impl StackText {
    pub(super) fn of(stack: StackId, describe: &mut dyn Describe) -> StackText {
        if stack.is_none() {
            let heading = "without a stack".to_string();
            return StackText { heading, frames: Vec::new(), omitted_count: 0 };
        }
        let heading = one_line(&describe.category(stack));
        let frames = describe.frames(stack);
        let frames = without_start(&frames);
        let shown: Vec<String> = informative(frames).map(line).collect();
        StackText { heading, omitted_count: frames.len() - shown.len(), frames: shown }
    }

    pub(super) fn write_frames(&self, text: &mut String) -> fmt::Result {
        for frame in &self.frames {
            writeln!(text, "               {frame}")?;
        }
        match self.omitted_count {
            0 => Ok(()),
            count => writeln!(text, "               ... {count} more"),
        }
    }

    fn is_same_place(&self, other: &StackText) -> bool {
        self.heading == other.heading && self.frames == other.frames
    }
}

/// Describes the sites and adds up those that look alike: their stacks differ only in frames that
/// are not shown. The largest is first.
pub(super) fn merged(sites: &[Site], describe: &mut dyn Describe) -> Vec<(StackText, Site)> {
    let mut places: Vec<(StackText, Site)> = Vec::new();
    for site in sites {
        let text = StackText::of(site.stack, describe);
        match places.iter_mut().find(|(known, _)| known.is_same_place(&text)) {
            Some((_, held)) => {
                held.bytes = held.bytes.saturating_add(site.bytes);
                held.blocks_count += site.blocks_count;
            }
            None => places.push((text, *site)),
        }
    }
    places.sort_by_key(|(_, held)| core::cmp::Reverse(held.bytes));
    places
}

/// Returns the site's frame and its informative callers. In a stack that consists of forwarding
/// code only, all frames count.
fn informative(frames: &[Arc<Frame>]) -> impl Iterator<Item = &Frame> {
    let kind = |frame: &Frame| frame_kind(&frame.name, &frame.filename);
    let site = site_index(frames.iter().map(|frame| kind(frame)));
    let least = match site.map(|site| kind(&frames[site])) {
        Some(FrameKind::Plumbing) => FrameKind::Plumbing,
        site => least_of_callers(site),
    };
    let from_site = &frames[site.unwrap_or(0)..];
    let kept = from_site.iter().map(|frame| &**frame).filter(move |frame| kind(frame) >= least);
    kept.take(FRAMES_COUNT_MAX)
}

/// Returns `forward  /home/me/model.py:52`, or for a library without lines `cublasCreate
/// libcublas.so.12+0x3f2`.
fn line(frame: &Frame) -> String {
    let name = one_line(&short_name(&frame.name));
    let file =
        if is_source(&frame.filename) { &frame.filename } else { short_path(&frame.filename) };
    let place = plain(&place(file, frame.line)).into_owned();
    // The end of a path tells most.
    match place.char_indices().rev().nth(CHARS_MAX) {
        Some((begin, _)) => format!("{name}  ...{}", &place[begin..]),
        None => format!("{name}  {place}"),
    }
}

fn one_line(name: &str) -> String {
    cut(&plain(name), CHARS_MAX).into_owned()
}
