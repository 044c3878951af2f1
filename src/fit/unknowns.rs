//! Facts that a history lacks, and the consequences for a result.

use cachealloc_analysis::Lifetimes;
use cachealloc_analysis::model::{Action, Device, Dropped, PoolId, Snapshot};
use cachealloc_text::{bytes, count, plural};

use crate::requests::Requests;

/// Returns the unknowns as sentences, without a capital letter and without a full stop.
pub(crate) fn unknowns(
    snapshot: &Snapshot,
    device: &Device,
    lifetimes: &Lifetimes,
    requests: &Requests,
) -> Vec<String> {
    let mut unknowns = vec![
        "memory of contexts, kernels and other processes is not in a history and comes on top"
            .to_string(),
    ];
    let lives = &lifetimes.all;
    let before: Vec<_> = lives.iter().filter(|life| !life.begin_known).collect();
    let before_bytes = before.iter().fold(0, |sum: u64, life| sum.saturating_add(life.bytes));
    match snapshot.settings.dropped {
        Dropped::Count(dropped @ 1..) => unknowns.push(format!(
            "the oldest {} entries are lost: the peak may have been earlier",
            count(dropped)
        )),
        Dropped::Unknown if !before.is_empty() => unknowns.push(
            "the history begins late, or its oldest entries are lost: the peak may have been earlier"
                .to_string(),
        ),
        _ if snapshot.setting("recorded_from_start") == Some("false") => {
            unknowns.push("recording began late: the peak may have been earlier".to_string());
        }
        _ => {}
    }
    if !before.is_empty() {
        unknowns.push(format!(
            "{} ({}) are placed first: they were allocated before the history began, so their layout is unknown",
            plural(before.len() as u64, "block"),
            bytes(before_bytes)
        ));
    }
    if lifetimes.disagreements_count > 0 {
        unknowns.push(format!(
            "the history does not account for {}: it has gaps",
            plural(lifetimes.disagreements_count, "block")
        ));
    }
    let late = device.entries.iter().filter(|entry| entry.action == Action::FreeCompleted).count();
    if late > 0 {
        unknowns.push(format!(
            "{} waited for work: the memory counts as free when the recorded run noticed it, which may be \
            earlier or later elsewhere",
            plural(late as u64, "free")
        ));
    }
    if !requests.has_times() {
        unknowns
            .push("the history has no times: memory unused for seconds counts as kept".to_string());
    }
    if requests.has_streams() {
        unknowns.push(
            "if a request finds no other memory, work on a stream is assumed to have ended: its duration is unknown"
                .to_string(),
        );
    }
    if device.entries.iter().any(|entry| entry.pool != PoolId::DEFAULT)
        || device.segments.iter().any(|segment| segment.pool != PoolId::DEFAULT)
    {
        unknowns.push(
            "memory of CUDA graphs counts like other memory: how long a graph keeps it is unknown"
                .to_string(),
        );
    }
    if requests.failed_count() > 0 {
        unknowns.push(format!(
            "{} failed in the recorded run and must be served here: what would have followed is unknown",
            plural(requests.failed_count(), "request")
        ));
    }
    unknowns
}
