//! Makes a report from snapshots: one HTML file that explains what was in GPU memory.
//!
//! The file needs only a browser: no network, no server, no other file. The page computes its
//! drawings (`page/`) from compact columns, so that the reader can choose any moment. The
//! sentences are computed here ([`findings`]), so that they can be read without JavaScript.
//!
//! Names in a snapshot come from the program, and may be anything. They enter the page as text
//! only: escaped in HTML ([`html`]), deflated in the columns, and as text nodes created by the
//! page.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

// Data of the page.
mod breakdown;
mod columns;
mod findings;
mod fit;
mod head;
mod inputs;
mod layout;
mod segment_free;
mod segments;
mod sites;
mod tables;
mod text;
mod text_summary;
mod track;

// The page around the data.
mod html;

use std::io::{self, Write};

pub use fit::FitWhen;
pub use inputs::{Input, last_of_each_process};
pub use segment_free::{BesideSite, SegmentFree};
pub use text_summary::{DeviceSummary, Failed, Held, Range, RangePass, TextSummary, tell};

/// Writes the page. `inputs` are ranks, or moments of one run, in the order of the command line.
pub fn write(inputs: &[Input], fit: FitWhen, out: &mut impl Write) -> io::Result<()> {
    let mut layout = layout::Layout::of(inputs, fit);
    // The page does not need them, and deflating takes memory.
    (layout.places, layout.translations) = Default::default();
    html::write(&layout, out)
}
