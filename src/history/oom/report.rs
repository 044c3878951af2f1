//! The report that a person gets when a call has failed for lack of memory: one block of text for
//! stderr. It names the failed call and its request, what holds the memory by kind and call site,
//! why the free memory did not serve (`oom_why`), and what would help.

use std::fmt::{self, Write};

use cachealloc_text::{bytes, cut, plain, plural};

use crate::entry::StackId;
use crate::frames::{Describe, Frame, without_start};
use crate::oom::data::{OomLimit, OomPart, OomReport, OomRequest};
use crate::oom::why::reasons;
use crate::sites::Site;

/// Returns the report: several lines, each terminated.
pub fn oom_report(report: &OomReport, describe: &mut dyn Describe) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_request(&mut text, report, describe);
    let _ = write_numbers(&mut text, report);
    let _ = write_sites(&mut text, &report.sites, describe);
    let _ = write_reasons(&mut text, report);
    text
}

/// Returns the request in one line: the call, the kind of memory and the amount.
pub fn oom_title(device: u32, request: &OomRequest) -> String {
    let OomRequest { function, kind, bytes, .. } = request;
    format!("out of memory on device {device}: {function} asked for {}", kind.amount(*bytes))
}

/// Maximum number of sites shown, and of frames of each.
const SITES_COUNT_MAX: usize = 5;
const FRAMES_COUNT_MAX: usize = 6;

fn write_request(
    text: &mut String,
    report: &OomReport,
    describe: &mut dyn Describe,
) -> fmt::Result {
    write!(text, "cachealloc: {}", oom_title(report.device, &report.request))?;
    match report.limit.as_ref().filter(|limit| limit.forbids(&report.request)) {
        Some(limit) => writeln!(text, ", more than {} allows", limit.option)?,
        None => writeln!(text)?,
    }
    write!(text, "  asked by")?;
    write_stack(text, report.request.stack, "     ", describe)
}

fn write_numbers(text: &mut String, report: &OomReport) -> fmt::Result {
    match (report.driver_free_bytes, report.driver_total_bytes) {
        (Some(free), Some(total)) => {
            let (free, total) = (bytes(free), bytes(total));
            writeln!(text, "  on the GPU    {free} free of {total}")?;
        }
        (Some(free), None) => writeln!(text, "  on the GPU    {} free", bytes(free))?,
        (None, _) => writeln!(text, "  on the GPU    not known")?,
    }
    if let Some(free) = report.host_free_bytes {
        writeln!(text, "  on the host   {} available", bytes(free))?;
    }
    match &report.limit {
        Some(OomLimit { bytes: limit, held_bytes, option }) => {
            let (limit, held) = (bytes(*limit), bytes(*held_bytes));
            writeln!(text, "  limit         {limit} ({option}), {held} held by all libraries")?;
        }
        None => writeln!(text, "  limit         none is set")?,
    }
    writeln!(text, "  this process  holds, as far as its calls tell:")?;
    if report.parts.is_empty() {
        writeln!(text, "  {:>10}", "nothing")?;
    }
    for OomPart { title, bytes: held, count } in &report.parts {
        write!(text, "  {:>10} {title}", bytes(*held))?;
        match count {
            0 => writeln!(text)?,
            count => writeln!(text, ", {}", plural(*count, "allocation"))?,
        }
    }
    if report.cache.free_bytes > 0 {
        let largest = bytes(report.cache.free_block_bytes_max);
        writeln!(text, "             the largest free block of the cache is {largest}")?;
    }
    match report.rest_bytes {
        Some(rest) if rest > 0 => writeln!(
            text,
            "  {:>10} in use, and in none of these: contexts, code, other processes",
            bytes(rest)
        ),
        _ => Ok(()),
    }
}

fn write_sites(text: &mut String, sites: &[Site], describe: &mut dyn Describe) -> fmt::Result {
    let shown = &sites[..sites.len().min(SITES_COUNT_MAX)];
    match (shown.len(), sites.len()) {
        (0, _) => {
            return writeln!(text, "  held by       not recorded (record:state or record:all)");
        }
        (shown, all) if shown < all => {
            writeln!(text, "  held by the largest {shown} of {all} call sites:")?;
        }
        _ => writeln!(text, "  held by:")?,
    }
    for site in shown {
        write!(text, "  {:>10} in {}", bytes(site.bytes), plural(site.blocks_count, "block"))?;
        write_stack(text, site.stack, ",", describe)?;
    }
    if sites.len() > shown.len() {
        let rest = &sites[shown.len()..];
        let others = rest.iter().fold(0u64, |sum, site| sum.saturating_add(site.bytes));
        writeln!(text, "  {:>10} elsewhere", bytes(others))?;
    }
    Ok(())
}

fn write_reasons(text: &mut String, report: &OomReport) -> fmt::Result {
    let reasons = reasons(report);
    let helps = || reasons.iter().filter_map(|reason| reason.help.as_deref());
    for (place, reason) in reasons.iter().enumerate() {
        let begin = if place == 0 { "why" } else { "" };
        writeln!(text, "  {begin:<13} {}", reason.why)?;
    }
    for (place, help) in helps().enumerate() {
        let begin = if place == 0 { "what helps" } else { "" };
        writeln!(text, "  {begin:<13} {help}")?;
    }
    Ok(())
}

/// Writes a stack. `link` goes between the text before it in the line and the library.
fn write_stack(
    text: &mut String,
    stack: StackId,
    link: &str,
    describe: &mut dyn Describe,
) -> fmt::Result {
    if stack.is_none() {
        return writeln!(text, "{link} without a stack");
    }
    let category = describe.category(stack);
    if !category.is_empty() {
        write!(text, "{link} {}", one_line(&category))?;
    }
    writeln!(text)?;
    let frames = describe.frames(stack);
    let frames = without_start(&frames);
    for frame in frames.iter().take(FRAMES_COUNT_MAX) {
        write_frame(text, frame)?;
    }
    if frames.len() > FRAMES_COUNT_MAX {
        writeln!(text, "               ... {} more", frames.len() - FRAMES_COUNT_MAX)?;
    }
    Ok(())
}

fn write_frame(text: &mut String, frame: &Frame) -> fmt::Result {
    let name = one_line(&frame.name);
    writeln!(text, "               {name}  {}", one_line(&frame.place()))
}

fn one_line(name: &str) -> String {
    cut(&plain(name), NAME_LETTERS_MAX).into_owned()
}

const NAME_LETTERS_MAX: usize = 100;
