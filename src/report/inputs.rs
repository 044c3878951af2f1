//! The files of a report, and the tracks of the page made from them.

use std::collections::HashSet;

use cachealloc_analysis::model::{Dropped, Snapshot};
use cachealloc_analysis::{Failure, Passes};

use crate::track::Track;

/// A file and the name under which it is shown.
pub struct Input {
    pub name: String,
    pub snapshot: Snapshot,
}

/// A track of the page, and its source.
pub(crate) struct DeviceTrack {
    pub file: usize,
    pub device: usize,
    pub track: Track,
    /// Page's stack number of each row.
    pub stacks: Vec<u32>,
    /// Page's text numbers of the range and of the pool in which each row was allocated: a single
    /// one if all are equal.
    pub row_ranges: Vec<u32>,
    pub row_pools: Vec<u32>,
    /// Page's stack numbers of the free of each row. The two fields below are those of each reserve
    /// and of each failed allocation.
    pub free_stacks: Vec<u32>,
    pub reserve_stacks: Vec<u32>,
    pub oom_stacks: Vec<u32>,
    /// The recorded failure of each failed call, which has more than its entry.
    pub failures: Vec<Option<Failure>>,
    /// Page's text number of the description of each failed request.
    pub oom_titles: Vec<u32>,
    /// Page's text number of the sentence why free memory did not help, for as many failures as the
    /// time allows.
    pub oom_whys: Vec<u32>,
    /// Page's text number of the pool of each reserve.
    pub pools: Vec<u32>,
    pub passes: Passes,
    /// Page's text number of the name of each range.
    pub ranges: Vec<u32>,
}

/// Returns the program's name if the file has it, otherwise the file's name.
pub(crate) fn title(inputs: &[Input]) -> String {
    let programs = inputs.iter().filter_map(|input| input.snapshot.setting("program"));
    let programs: HashSet<_> = programs.collect();
    match (programs.len(), inputs) {
        (1, _) => programs.into_iter().next().unwrap_or_default().to_string(),
        (_, [only]) => only.name.clone(),
        (_, [first, others @ ..]) => format!("{} and {} more", first.name, others.len()),
        (_, []) => "nothing".to_string(),
    }
}

/// Returns whether the files are moments of one process, which must not be added up. That is the
/// case if an entry of the first is in the second as well, or if both have the same host and
/// process.
pub(crate) fn same_process(inputs: &[Input]) -> bool {
    let [first, others @ ..] = inputs else { return false };
    // The following checks visit every entry.
    if others.is_empty() {
        return false;
    }
    let identity = |input: &Input| {
        let setting = |name| input.snapshot.setting(name).map(str::to_string);
        Some((setting("host")?, setting("process")?))
    };
    let key = |input: &Input| {
        let entries = input.snapshot.devices.iter().flat_map(|device| &device.entries);
        let keys = entries.filter(|entry| entry.time_us > 0 && entry.bytes > 0);
        keys.map(|entry| (entry.time_us, entry.address, entry.bytes)).collect::<HashSet<_>>()
    };
    if let Some(identity_of_first) = identity(first) {
        return others.iter().all(|other| identity(other).as_ref() == Some(&identity_of_first));
    }
    let known = key(first);
    others.iter().all(|other| !known.is_disjoint(&key(other)))
}

/// Returns the last snapshot of each process, and the names of the others, whose history it has.
/// With `compares`, all moments of a single process stay, to be compared.
pub fn last_of_each_process(inputs: Vec<Input>, compares: bool) -> (Vec<Input>, Vec<String>) {
    let identity = |input: &Input| {
        let setting = |name| input.snapshot.setting(name).map(str::to_string);
        Some((setting("host")?, setting("process")?))
    };
    let identities: Vec<_> = inputs.iter().map(identity).collect();
    if compares && same_process(&inputs) {
        return (inputs, Vec::new());
    }
    // If a process number was reused, the histories have nothing in common.
    let is_later = |at: usize, other: usize| {
        let is_same = identities[at].is_some() && identities[at] == identities[other];
        let length = |at: usize| (inputs[at].snapshot.entries_count(), at);
        is_same && length(other) > length(at) && covers(&inputs[other], &inputs[at])
    };
    let is_last = |at: usize| !(0..inputs.len()).any(|other| is_later(at, other));
    let last: Vec<bool> = (0..inputs.len()).map(is_last).collect();
    let earlier = inputs.iter().zip(&last).filter(|(_, last)| !**last);
    let earlier = earlier.map(|(input, _)| input.name.clone()).collect();
    let inputs = inputs.into_iter().zip(last).filter(|(_, last)| *last);
    (inputs.map(|(input, _)| input).collect(), earlier)
}

/// Returns whether the history of `later` continues past the end of `earlier`, and lacks nothing of
/// it.
fn covers(later: &Input, earlier: &Input) -> bool {
    let is_whole = matches!(later.snapshot.settings.dropped, Dropped::Count(0));
    let first = |input: &Input| {
        let devices = input.snapshot.devices.iter();
        devices.filter_map(|device| device.entries.first()).map(|entry| entry.time_us).min()
    };
    // Times of the same entry differ by up to a microsecond.
    let begins = [first(later), first(earlier)];
    let begin_alike = match begins {
        [Some(one), Some(other)] => one <= other + 1,
        _ => true,
    };
    is_whole && begin_alike
}

/// Returns whether these are consecutive runs, whose memory was not held at the same time.
pub(crate) fn are_runs(inputs: &[Input]) -> bool {
    let time = |input: &Input| {
        let entries = || input.snapshot.devices.iter().flat_map(|device| &device.entries);
        let times = || entries().map(|entry| entry.time_us).filter(|time_us| *time_us > 0);
        Some((times().min()?, times().max()?))
    };
    let times: Option<Vec<(u64, u64)>> = inputs.iter().map(time).collect();
    let Some(mut times) = times.filter(|times| times.len() > 1) else { return false };
    times.sort_unstable();
    !same_process(inputs) && times.windows(2).all(|two| two[0].1 < two[1].0)
}

/// Returns the snapshot with the longest history of several of one process. It covers the others,
/// unless it dropped their entries. Times cannot be compared, because those of the same entry
/// differ by a microsecond.
pub(crate) fn last_snapshot(inputs: &[Input]) -> Option<usize> {
    let length = |&file: &usize| inputs[file].snapshot.entries_count();
    let last = (0..inputs.len()).max_by_key(length)?;
    let is_whole = matches!(inputs[last].snapshot.settings.dropped, Dropped::Count(0));
    (is_whole && same_process(inputs)).then_some(last)
}
