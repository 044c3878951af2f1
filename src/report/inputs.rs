//! The files of a report, and the tracks of the page that are made of them.

use std::collections::HashSet;

use cachealloc_analysis::model::{Dropped, Snapshot};
use cachealloc_analysis::{Failure, Passes};

use crate::track::Track;

/// One file, under the name that is shown.
pub struct Input {
    pub name: String,
    pub snapshot: Snapshot,
}

/// A track of the page, and where it comes from.
pub(crate) struct DeviceTrack {
    pub file: usize,
    pub device: usize,
    pub track: Track,
    /// The page's number of the stack of each row.
    pub stacks: Vec<u32>,
    /// And those of its free, of each reserve and of each failed allocation.
    pub free_stacks: Vec<u32>,
    pub reserve_stacks: Vec<u32>,
    pub oom_stacks: Vec<u32>,
    /// What the file says of each failed call beside its entry.
    pub failures: Vec<Option<Failure>>,
    /// And the page's number of the text of what it asked for.
    pub oom_titles: Vec<u32>,
    /// And that of the sentence that says why free memory did not help, for as many as there is
    /// time for.
    pub oom_whys: Vec<u32>,
    /// And that of the text of each reserve's pool.
    pub pools: Vec<u32>,
    pub passes: Passes,
    /// And that of what each of their ranges is called.
    pub ranges: Vec<u32>,
}

/// The program's name if the file has it, else the file's.
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

/// Whether the files are moments of one process, and so must not be added up: an entry of the first
/// is in the second as well, or both say the same host and process.
pub(crate) fn same_process(inputs: &[Input]) -> bool {
    let [first, others @ ..] = inputs else { return false };
    // What follows looks at every entry.
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

/// Of snapshots of several processes, the last of each, and the names of the others, whose history
/// it has. `compares`: those of one process are moments to be compared, and all stay.
pub fn last_of_each_process(inputs: Vec<Input>, compares: bool) -> (Vec<Input>, Vec<String>) {
    let identity = |input: &Input| {
        let setting = |name| input.snapshot.setting(name).map(str::to_string);
        Some((setting("host")?, setting("process")?))
    };
    let identities: Vec<_> = inputs.iter().map(identity).collect();
    if compares && same_process(&inputs) {
        return (inputs, Vec::new());
    }
    // Of a process number that came again, the histories have nothing in common.
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

/// Whether the history of one goes on where the other's ends, and lacks nothing of it.
fn covers(later: &Input, earlier: &Input) -> bool {
    let is_whole = matches!(later.snapshot.settings.dropped, Dropped::Count(0));
    let first = |input: &Input| {
        let devices = input.snapshot.devices.iter();
        devices.filter_map(|device| device.entries.first()).map(|entry| entry.time_us).min()
    };
    // Those of the same entry differ by a microsecond.
    let begins = [first(later), first(earlier)];
    let begin_alike = match begins {
        [Some(one), Some(other)] => one <= other + 1,
        _ => true,
    };
    is_whole && begin_alike
}

/// Whether these are several runs, one after the other: what each held was not there at the same
/// time.
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

/// Of several snapshots of one process, the one with the longest history: it covers the others,
/// unless it dropped what they have. Times would not do: those of the same entry differ by a
/// microsecond.
pub(crate) fn last_snapshot(inputs: &[Input]) -> Option<usize> {
    let length = |&file: &usize| inputs[file].snapshot.entries_count();
    let last = (0..inputs.len()).max_by_key(length)?;
    let is_whole = matches!(inputs[last].snapshot.settings.dropped, Dropped::Count(0));
    (is_whole && same_process(inputs)).then_some(last)
}
