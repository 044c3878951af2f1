//! What a person should know when a request for memory is about to fail: one block of text for
//! stderr, with the numbers that decide which of the usual remedies helps, and the largest holders.

use std::fmt::{self, Write};

use cachealloc_text::{bytes, cut, plain, plural};

use crate::entry::StackId;
use crate::frames::{Describe, Frame};
use crate::sites::Site;

pub struct OomReport<'a> {
    /// The ordinal.
    pub device: u32,
    pub asked_bytes: u64,
    /// The limit that the user set, if any.
    pub limit: Option<OomLimit<'a>>,
    pub reserved_bytes: u64,
    pub allocated_bytes: u64,
    pub free_block_bytes_max: u64,
    /// Free on the device, and all of it, as the driver says; None if it could not be asked.
    pub driver_free_bytes: Option<u64>,
    pub driver_total_bytes: Option<u64>,
    /// The largest first, as [`sites`](crate::sites()) returns them.
    pub sites: &'a [Site],
}

/// What the process may hold of the device.
pub struct OomLimit<'a> {
    pub bytes: u64,
    /// By all libraries of the process together.
    pub held_bytes: u64,
    /// The option that set it.
    pub option: &'a str,
}

impl OomLimit<'_> {
    /// Whether the limit is what the request failed on.
    fn forbids(&self, asked_bytes: u64) -> bool {
        self.held_bytes.saturating_add(asked_bytes) > self.bytes
    }
}

/// Several lines, each ended.
pub fn oom_report(report: &OomReport, describe: &mut dyn Describe) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_numbers(&mut text, report);
    let _ = write_sites(&mut text, report.sites, describe);
    text
}

/// How many sites are shown, and how many frames of each.
const SITES_COUNT_MAX: usize = 5;
const FRAMES_COUNT_MAX: usize = 6;

fn write_numbers(text: &mut String, report: &OomReport) -> fmt::Result {
    let asked = bytes(report.asked_bytes);
    write!(text, "cachealloc: out of memory on device {}: asked for {asked}", report.device)?;
    match report.limit.as_ref().filter(|limit| limit.forbids(report.asked_bytes)) {
        Some(limit) => writeln!(text, ", more than {} allows", limit.option)?,
        None => writeln!(text)?,
    }
    match (report.driver_free_bytes, report.driver_total_bytes) {
        (Some(free), Some(total)) => {
            let (free, total) = (bytes(free), bytes(total));
            writeln!(text, "  on the GPU    {free} free of {total}")?;
        }
        (Some(free), None) => writeln!(text, "  on the GPU    {} free", bytes(free))?,
        (None, _) => writeln!(text, "  on the GPU    not known")?,
    }
    let reserved = bytes(report.reserved_bytes);
    match &report.limit {
        Some(OomLimit { bytes: limit, held_bytes, option }) => {
            let (limit, held) = (bytes(*limit), bytes(*held_bytes));
            writeln!(text, "  limit         {limit} ({option}), {held} held by all libraries")?;
            writeln!(text, "  reserved      {reserved} of that")?;
        }
        None => writeln!(text, "  reserved      {reserved} by this process, no limit is set")?,
    }
    writeln!(text, "  allocated     {} of that", bytes(report.allocated_bytes))?;
    let unused = report.reserved_bytes.saturating_sub(report.allocated_bytes);
    let largest = bytes(report.free_block_bytes_max);
    writeln!(text, "  not in use    {}, the largest block is {largest}", bytes(unused))
}

fn write_sites(text: &mut String, sites: &[Site], describe: &mut dyn Describe) -> fmt::Result {
    let shown = &sites[..sites.len().min(SITES_COUNT_MAX)];
    match (shown.len(), sites.len()) {
        (0, _) => return writeln!(text, "  held by       not recorded"),
        (shown, all) if shown < all => {
            writeln!(text, "  held by the largest {shown} of {all} call sites:")?;
        }
        _ => writeln!(text, "  held by:")?,
    }
    for site in shown {
        write!(text, "  {:>10} in {}", bytes(site.bytes), plural(site.blocks_count, "block"))?;
        write_stack(text, site.stack, describe)?;
    }
    if sites.len() > shown.len() {
        let rest = &sites[shown.len()..];
        let others = rest.iter().fold(0u64, |sum, site| sum.saturating_add(site.bytes));
        writeln!(text, "  {:>10} elsewhere", bytes(others))?;
    }
    Ok(())
}

fn write_stack(text: &mut String, stack: StackId, describe: &mut dyn Describe) -> fmt::Result {
    if stack.is_none() {
        return writeln!(text, ", without a stack");
    }
    let category = describe.category(stack);
    if !category.is_empty() {
        write!(text, ", {}", one_line(&category))?;
    }
    writeln!(text)?;
    let frames = describe.frames(stack);
    for frame in frames.iter().take(FRAMES_COUNT_MAX) {
        write_frame(text, frame)?;
    }
    if frames.len() > FRAMES_COUNT_MAX {
        writeln!(text, "               ... {} more", frames.len() - FRAMES_COUNT_MAX)?;
    }
    Ok(())
}

fn write_frame(text: &mut String, frame: &Frame) -> fmt::Result {
    let (name, filename) = (one_line(&frame.name), one_line(&frame.filename));
    writeln!(text, "               {name}  {filename}:{}", frame.line)
}

fn one_line(name: &str) -> String {
    cut(&plain(name), NAME_LETTERS_MAX).into_owned()
}

const NAME_LETTERS_MAX: usize = 100;
