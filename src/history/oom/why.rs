//! Explains why the free memory did not serve a request, and what would have. Each sentence follows
//! from a number of the report and is omitted if the number is unknown.

use cachealloc_text::bytes;

use crate::oom::data::OomReport;
use crate::oom::kind::{OomKind, OomPlace};

/// One reason, and a remedy if one is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OomReason {
    pub why: String,
    pub help: Option<String>,
}

fn reason(why: String) -> OomReason {
    OomReason { why, help: None }
}

/// Returns the reasons, the most direct first. Empty if nothing is known.
pub fn reasons(report: &OomReport) -> Vec<OomReason> {
    let request = &report.request;
    match request.kind.place() {
        OomPlace::Host => return on_host(report).into_iter().collect(),
        OomPlace::Device => {}
        OomPlace::DriversOwn | OomPlace::Unknown => {
            let first = report.driver_free_bytes.map(|free| {
                let free = bytes(free);
                reason(format!(
                    "{} did not fit: the driver reports {free} free",
                    request.kind.title()
                ))
            });
            return first.into_iter().chain(held_back(report, None)).collect();
        }
    }
    let Some(asked) = request.bytes else { return held_back(report, None) };
    if let Some(total) = report.driver_total_bytes.filter(|total| asked > *total) {
        return vec![reason(format!("the device has only {}", bytes(total)))];
    }
    let mut all = Vec::new();
    let forbidden = report.limit.filter(|limit| limit.forbids(request));
    match (forbidden, report.driver_free_bytes) {
        (Some(limit), free) => {
            let needed = limit.held_bytes.saturating_add(asked);
            let why = format!(
                "{} of {} are held: {} more would exceed the limit by {}",
                bytes(limit.held_bytes),
                bytes(limit.bytes),
                bytes(asked),
                bytes(needed - limit.bytes),
            );
            let help = free.filter(|free| *free >= asked).map(|free| {
                let free = bytes(free);
                format!("raise the limit to at least {}: {free} are free on the device", bytes(needed))
            });
            all.push(OomReason { why, help });
        }
        (None, Some(free)) if free < asked => all.push(reason(format!(
            "{} are free on the device, {} less than requested",
            bytes(free),
            bytes(asked - free)
        ))),
        (None, Some(free)) => all.push(reason(format!(
            "the driver failed the call but now reports {} free: memory was freed since, or is unusable for this",
            bytes(free)
        ))),
        (None, None) => {}
    }
    all.extend(held_back(report, Some(asked)));
    all
}

/// Lists free memory that did not serve the request. `asked` is `None` if the size is unknown.
fn held_back(report: &OomReport, asked: Option<u64>) -> Vec<OomReason> {
    let cache = &report.cache;
    let free = report.driver_free_bytes.unwrap_or(0);
    let suffices = |more: u64| asked.is_none_or(|asked| more.saturating_add(free) >= asked);
    let mut all = Vec::new();
    let mut add = |count: u64, why: String, help: &str| {
        if count > 0 {
            let help = (!help.is_empty() && suffices(count)).then(|| help.to_string());
            all.push(OomReason { why, help });
        }
    };
    let in_cache = bytes(cache.free_bytes);
    let expandable = if cache.is_expandable {
        ""
    } else {
        "set expandable_segments:true, which releases and merges free parts of segments"
    };
    let largest = bytes(cache.free_block_bytes_max);
    add(
        cache.free_bytes,
        match (report.request.kind, asked) {
            (OomKind::Linear | OomKind::Pooled, Some(asked)) if asked <= cache.free_bytes => {
                format!(
                    "fragmentation: {in_cache} are free in the cache, the largest block is {largest}"
                )
            }
            _ => format!("{in_cache} are free in the cache, in segments with live blocks"),
        },
        expandable,
    );
    add(
        cache.waiting_bytes,
        format!("{} are freed, but a stream may still use them", bytes(cache.waiting_bytes)),
        "synchronize the streams that used them before the request",
    );
    add(
        cache.private_free_bytes,
        format!("{} are free, but kept for captured graphs", bytes(cache.private_free_bytes)),
        "destroy graphs that are no longer launched",
    );
    add(
        report.graphs_bytes,
        format!("{} are reserved for memory nodes of graphs", bytes(report.graphs_bytes)),
        "call cuDeviceGraphMemTrim, which releases what no graph uses now",
    );
    add(
        report.pools_free_bytes,
        format!("{} are free in pools of the driver", bytes(report.pools_free_bytes)),
        "call cuMemPoolTrimTo, which releases them",
    );
    if let Some(rest) = report.rest_bytes.filter(|rest| *rest > 0) {
        add(
            rest,
            format!("{} are in use, but no call of this process accounts for them", bytes(rest)),
            "list the processes of the GPU with nvidia-smi",
        );
    }
    all
}

fn on_host(report: &OomReport) -> Option<OomReason> {
    let free = report.host_free_bytes?;
    let why = match report.request.bytes {
        Some(asked) if asked > free => {
            format!(
                "the host has {} available, {} less than requested",
                bytes(free),
                bytes(asked - free)
            )
        }
        _ => format!(
            "the driver failed the call although the host reports {} available: the process or its container may have a lower limit",
            bytes(free)
        ),
    };
    Some(reason(why))
}
