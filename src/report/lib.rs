//! The report: snapshots in, one HTML file out, which explains what was in GPU memory.
//!
//! The file needs nothing but a browser: no network, no server, no other file. What is drawn is computed
//! in the page (`page/*.js`) from compact columns, so that the reader can choose any moment; the
//! sentences are computed here ([`findings`]), so that they are there without JavaScript, too.
//!
//! Names in a snapshot come from the program, and may be anything. They enter the page as text only:
//! escaped in HTML ([`html`]), deflated among the columns, and as text nodes by the page.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

// From snapshots to the data of the page.
mod account;
mod columns;
mod files;
mod findings;
mod fit;
mod frameworks;
mod growth;
mod head;
mod inputs;
mod inside;
mod layout;
mod segments;
mod sites;
mod tables;
mod text;
mod together;
mod told;
mod track;

// The page around them.
mod html;

use std::io::{self, Write};

pub use fit::FitWhen;
pub use inputs::{Input, last_of_each_process};
pub use inside::{BesideSite, Inside};
pub use told::{Failed, Held, Range, RangePass, Told, ToldDevice, tell};

/// Writes the page. `inputs`: ranks, or moments of one run, in the order in which they are named.
pub fn write(inputs: &[Input], fit: FitWhen, out: &mut impl Write) -> io::Result<()> {
    let layout = layout::Layout::of(inputs, fit);
    html::write(&layout, out)
}
