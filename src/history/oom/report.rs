//! The report that a person gets when a call has failed for lack of memory: one block of text for
//! stderr. It names the failed call and its request, what holds the memory by kind and call site,
//! why the free memory did not serve (`oom_why`), and what would help.

use std::fmt::{self, Write};

use cachealloc_text::{bytes, plural};

use crate::frames::Describe;
use crate::oom::data::{OomLimit, OomPart, OomReport, OomRequest};
use crate::oom::stack_text::{StackText, merged};
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

/// Returns the short report of a request that the same thread has repeated: several lines, each
/// terminated.
pub fn oom_again(
    device: u32,
    request: &OomRequest,
    free_bytes: Option<u64>,
    describe: &mut dyn Describe,
) -> String {
    let OomRequest { function, kind, bytes: asked, .. } = request;
    let (amount, free) = (kind.amount(*asked), free_bytes.map(bytes));
    let free = free.map(|free| format!(", with {free} free on the GPU")).unwrap_or_default();
    let mut text = format!(
        "cachealloc: out of memory again on device {device}: {function} asked for {amount}{free}\n"
    );
    // Writing to a string does not fail.
    let _ = write_asking(&mut text, request, describe);
    text
}

/// Returns the request in one line: the call, the kind of memory and the amount.
pub fn oom_title(device: u32, request: &OomRequest) -> String {
    let OomRequest { function, kind, bytes, .. } = request;
    format!("out of memory on device {device}: {function} asked for {}", kind.amount(*bytes))
}

/// Maximum number of sites shown.
const SITES_COUNT_MAX: usize = 5;
/// Maximum number of sites whose stacks are described. Several of them may turn out to be one
/// place.
pub const SITES_DESCRIBED_MAX: usize = 16;

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
    write_asking(text, &report.request, describe)
}

fn write_asking(
    text: &mut String,
    request: &OomRequest,
    describe: &mut dyn Describe,
) -> fmt::Result {
    let asking = StackText::of(request.stack, describe);
    match &*asking.heading {
        "" => writeln!(text, "  asked by")?,
        heading => writeln!(text, "  asked by      {heading}")?,
    }
    asking.write_frames(text)
}

fn write_numbers(text: &mut String, report: &OomReport) -> fmt::Result {
    match (report.driver_free_bytes, report.driver_total_bytes) {
        (Some(free), Some(total)) => {
            let (free, total) = (bytes(free), bytes(total));
            writeln!(text, "  on the GPU    {free} free of {total}")?;
        }
        (Some(free), None) => writeln!(text, "  on the GPU    {} free", bytes(free))?,
        (None, _) => writeln!(text, "  on the GPU    unknown")?,
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
    writeln!(text, "  this process  holds, according to its calls:")?;
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
            "  {:>10} in use for other purposes: contexts, code, other processes",
            bytes(rest)
        ),
        _ => Ok(()),
    }
}

fn write_sites(text: &mut String, sites: &[Site], describe: &mut dyn Describe) -> fmt::Result {
    if sites.is_empty() {
        return writeln!(text, "  held by       not recorded (record:state or record:all)");
    }
    let (described, rest) = sites.split_at(sites.len().min(SITES_DESCRIBED_MAX));
    let places = merged(described, describe);
    let shown = &places[..places.len().min(SITES_COUNT_MAX)];
    match (shown.len(), places.len() + rest.len()) {
        (shown, all) if shown < all => {
            writeln!(text, "  held by the largest {shown} of {all} call sites:")?;
        }
        _ => writeln!(text, "  held by:")?,
    }
    for (place, held) in shown {
        write!(text, "  {:>10} in {}", bytes(held.bytes), plural(held.blocks_count, "block"))?;
        match &*place.heading {
            "" => writeln!(text)?,
            heading => writeln!(text, ", {heading}")?,
        }
        place.write_frames(text)?;
    }
    let others = places[shown.len()..].iter().map(|(_, held)| held).chain(rest);
    let others = others.fold(0u64, |sum, site| sum.saturating_add(site.bytes));
    if others > 0 {
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
