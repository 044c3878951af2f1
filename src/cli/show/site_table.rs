//! Names the call sites of a running process as a report names those of a snapshot.

use cachealloc_analysis::model::{Frame, FrameId, Snapshot, StackId};
use cachealloc_analysis::names::Names;
use cachealloc_analysis::{Weighed, candidates, site_frames};

use serde_json::Value;

use crate::live::{self, CallSite, Statistics};

const NOT_KNOWN: &str = "(not recorded)";

/// Returns a line for each call site: `leak c/planted.c:22`, with the caller appended to a function
/// through which most allocations go. Pass all call sites of one process at once.
pub(crate) fn places(sites: &[&CallSite]) -> Vec<String> {
    lines(&sites.iter().map(|site| weighed(site)).collect::<Vec<_>>())
}

/// Returns where the last steady state of a process ended, among its call sites, or `None` if it is
/// not known.
pub(crate) fn steady_ended_by(statistics: &Statistics) -> Option<String> {
    let frames = statistics.steady_ended_by.as_deref()?;
    let sites = statistics.call_sites.iter().flatten();
    // The place is or was one of the call sites, so it adds no weight.
    let all = sites.map(weighed).chain([(frames, 0, 0)]);
    lines(&all.collect::<Vec<_>>()).pop()
}

fn weighed(site: &CallSite) -> (&[live::Frame], u64, u64) {
    (&site.frames, site.allocations, site.bytes.max(site.bytes_at_peak))
}

/// Returns a line for each stack. Each stack has its number of allocations and their bytes.
fn lines(stacks: &[(&[live::Frame], u64, u64)]) -> Vec<String> {
    // Names are computed on a snapshot, so one is built from the stacks.
    let mut model = Snapshot::default();
    let numbers: Vec<StackId> =
        stacks.iter().map(|(frames, ..)| stack(&mut model, frames)).collect();
    let names = Names::of(&model);
    let weighed = stacks.iter().zip(&numbers).map(|(&(_, count, bytes), stack)| {
        let frames = candidates(&model, &names, *stack).collect();
        Weighed { frames, count, bytes }
    });
    let place = |frames: Vec<FrameId>| match frames[..] {
        [] => NOT_KNOWN.to_string(),
        _ => frames.iter().map(|frame| names.label(*frame)).collect::<Vec<_>>().join(" < "),
    };
    site_frames(&weighed.collect::<Vec<_>>()).into_iter().map(place).collect()
}

/// Returns the statistics as the process sent them, with the line of each call site as `where`.
pub(crate) fn json_with_places(json: &str, statistics: &Statistics) -> Value {
    let mut object: Value = serde_json::from_str(json).unwrap_or_default();
    let sites: Vec<&CallSite> = statistics.call_sites.iter().flatten().collect();
    let objects = object.get_mut("call_sites").and_then(Value::as_array_mut);
    for (site, place) in objects.into_iter().flatten().zip(places(&sites)) {
        site.as_object_mut().map(|site| site.insert("where".to_string(), place.into()));
    }
    object
}

fn stack(model: &mut Snapshot, frames: &[live::Frame]) -> StackId {
    let frames = frames.iter().map(|frame| {
        let (name, filename) = (model.texts.add(&frame.name), model.texts.add(&frame.filename));
        let line = frame.line.or(frame.offset).unwrap_or(0);
        model.frames.add(Frame { name, filename, line })
    });
    let frames: Vec<FrameId> = frames.collect();
    model.stacks.add(&frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(allocations: u64, frames: &[(&str, u64)]) -> CallSite {
        let frame = |&(name, line): &(&str, u64)| live::Frame {
            name: name.to_string(),
            filename: "/home/me/app/a.cpp".to_string(),
            line: Some(line),
            offset: None,
        };
        CallSite {
            device: 0,
            library: "app".to_string(),
            bytes: 1,
            bytes_at_peak: 1,
            blocks: 1,
            allocations,
            frames: frames.iter().map(frame).collect(),
        }
    }

    /// A helper is never a call site, however deep; the only caller of a helper does not
    /// distinguish its allocations.
    #[test]
    fn a_helper_is_split_by_its_callers() {
        let check = ("check", 1);
        let sites = [
            site(10, &[check, ("get", 2), ("load", 3), ("main", 9)]),
            site(20, &[check, ("get", 2), ("step", 4), ("main", 9)]),
            site(1, &[("rare", 5), ("main", 9)]),
            site(0, &[]),
        ];
        let found = places(&sites.iter().collect::<Vec<_>>());
        let place = |frames: &[(&str, u64)]| {
            let label = |(name, line): &(&str, u64)| format!("{name} app/a.cpp:{line}");
            frames.iter().map(label).collect::<Vec<_>>().join(" < ")
        };
        assert_eq!(found[0], place(&[check, ("load", 3)]));
        assert_eq!(found[1], place(&[check, ("step", 4)]));
        assert_eq!(found[2..], [place(&[("rare", 5)]), NOT_KNOWN.to_string()]);
    }
}
