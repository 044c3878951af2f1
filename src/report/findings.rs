//! Main findings as plain sentences.

pub(crate) mod common;
mod files;
mod frameworks;
mod growth;

use std::collections::HashMap;

use cachealloc_analysis::model::{Action, Entry, StackId};
use cachealloc_analysis::{Moment, OTHERS_BETWEEN_MAX, Totals, Usage, sites};
use cachealloc_text::{bytes, count, plural};

use crate::findings::common::{Finding, Sentence, told_once};
use crate::fit::Fits;
use crate::inputs::{DeviceTrack, Input, are_runs, last_snapshot};
use crate::segment_free::{is_overcome, request_text};
use crate::tables::{Tables, Translation};
use crate::text::{in_address, share, time};

pub(crate) fn of(
    inputs: &[Input],
    places: &[DeviceTrack],
    translations: &mut [Translation],
    tables: &mut Tables,
    fits: &Fits,
) -> Vec<Sentence> {
    let mut findings = Vec::new();
    let last = last_snapshot(inputs);
    let is_shown = |place: &&DeviceTrack| last.is_none_or(|last| place.file == last);
    let shown: Vec<&DeviceTrack> = places.iter().filter(is_shown).collect();
    if let Some(last) = last {
        let (files, name) = (inputs.len(), &inputs[last].name);
        findings.push(Sentence::plain(format!(
            "{files} snapshots of one process; the findings are those of the last, {name}."
        )));
    }
    // Findings of one process need no name.
    let files = if last.is_some() { 1 } else { inputs.len() };
    let names: Vec<String> = match shown[..] {
        [_] => vec![String::new()],
        _ => shown.iter().map(|place| name_of(inputs, files, place)).collect(),
    };
    findings.extend(compared(inputs, &shown).map(Sentence::plain));
    let peak = |&number: &usize| shown[number].track.lifetimes.peak_bytes;
    let highest = (0..shown.len()).rev().max_by_key(peak);
    let is_crowd = shown.len() > DESCRIBED_MOST;
    if let (true, Some(highest)) = (is_crowd, highest) {
        findings.push(Sentence::plain(format!(
            "{} has the highest peak of {}; for the others, only failed allocations and common findings are listed.",
            names[highest],
            shown.len(),
        )));
    }
    let mut found = Vec::new();
    for (whose, &place) in shown.iter().enumerate() {
        let translation = &mut translations[place.file];
        let is_alone = places.len() == 1;
        found.extend(Found { inputs, place, translation, tables, fits, whose, is_alone }.all());
    }
    // Failed allocations come first, because they end programs.
    let (failed, others): (Vec<Finding>, Vec<Finding>) =
        found.into_iter().partition(|finding| finding.about.0 == OUT_OF_MEMORY);
    let mut first = told_once(failed, &names, |_| true);
    first.append(&mut findings);
    first.extend(told_once(others, &names, |group| {
        let is_highest = group.iter().any(|finding| Some(finding.whose) == highest);
        !is_crowd || is_highest || group.len() > 1
    }));
    first.extend(files::findings(inputs));
    first
}

/// Compares the peaks of two consecutive runs.
fn compared(inputs: &[Input], shown: &[&DeviceTrack]) -> Option<String> {
    let [before, after] = shown else { return None };
    if before.file == after.file || !are_runs(inputs) {
        return None;
    }
    let begin = |place: &DeviceTrack| place.track.times_us.first().copied();
    let (before, after) =
        if begin(before) <= begin(after) { (before, after) } else { (after, before) };
    let [first, second] = [before, after].map(|place| place.track.lifetimes.peak_bytes);
    let change = match (first, second) {
        (first, second) if first == second => "no change".to_string(),
        (first, second) if first > second => format!("{} less", bytes(first - second)),
        (first, second) => format!("{} more", bytes(second - first)),
    };
    Some(format!(
        "Two consecutive runs, compared and not added up: peak {} in {}, {} in {}, {change}.",
        bytes(first),
        inputs[before.file].name,
        bytes(second),
        inputs[after.file].name,
    ))
}

/// Most devices that are described. With more, only the one with the highest peak is.
const DESCRIBED_MOST: usize = 2;

fn name_of(inputs: &[Input], files: usize, place: &DeviceTrack) -> String {
    let name = match inputs[place.file].snapshot.setting("rank") {
        Some(rank) => &format!("Rank {rank} ({})", inputs[place.file].name),
        None => &inputs[place.file].name,
    };
    match (files, inputs[place.file].snapshot.devices.len()) {
        (1, _) => format!("Device {}", place.device),
        (_, 1) => name.clone(),
        _ => format!("{name}, device {}", place.device),
    }
}

/// Computes the findings of one device.
struct Found<'a, 'b> {
    inputs: &'a [Input],
    place: &'a DeviceTrack,
    translation: &'a mut Translation<'b>,
    tables: &'a mut Tables,
    fits: &'a Fits,
    whose: usize,
    /// Whether the page shows only this device at first, so that links can name its moments.
    is_alone: bool,
}

/// Call site, amount, and sentence of a finding.
type About = (Option<u32>, u64, String);

const OUT_OF_MEMORY: &str = "out of memory";

/// Description of a call site, and the totals of its stacks.
struct Site {
    number: u32,
    text: String,
    totals: Totals,
}

impl Found<'_, '_> {
    fn all(&mut self) -> Vec<Finding> {
        let sites = self.sites(self.place.track.lifetimes.last);
        let found = [
            (OUT_OF_MEMORY, self.out_of_memory(false)),
            ("peak", self.peak(&sites)),
            ("overcome", self.out_of_memory(true)),
            ("fit", self.fit()),
            ("never freed", self.never_freed(&sites)),
            ("grows", self.grows()),
            ("range grows", self.range_grows()),
            ("temporary", self.temporary(&sites)),
            ("fragmentation", self.fragmentation()),
            ("steady", self.steady()),
        ];
        let whose = self.whose;
        let found = found.into_iter().filter_map(|(kind, found)| Some((kind, found?)));
        let found: Vec<(&str, About)> = found.collect();
        let finding = |(kind, (site, weight, text))| {
            let link = self.link(kind, site);
            Finding { whose, about: (kind, site), weight, sentence: Sentence { text, link } }
        };
        found.into_iter().map(finding).collect()
    }

    /// Returns the link to the part of the page that shows a finding.
    fn link(&self, kind: &str, site: Option<u32>) -> Option<(String, &'static str)> {
        let of = |view: &str, name| Some((view.to_string(), name));
        match (kind, site) {
            (OUT_OF_MEMORY | "overcome", _) => of("ooms", "Out of memory"),
            ("peak", _) if self.is_alone && self.has_history() => {
                let peak = self.place.track.page_moment(self.place.track.lifetimes.peak);
                Some((format!("timeline&at={peak}"), "Over time"))
            }
            ("peak" | "steady", _) => of("timeline", "Over time"),
            ("fit", _) => of("fit", "Smaller device"),
            ("never freed" | "temporary", _) => of("waste", "Waste"),
            ("range grows", _) => of("ranges", "Ranges"),
            ("fragmentation", _) => of("segments", "Segments"),
            (_, Some(site)) => {
                let place = in_address(self.tables.site_place(site));
                Some((format!("sites&sites={place}"), "Call sites"))
            }
            _ => None,
        }
    }

    /// Returns all call sites, with what they hold at a moment.
    fn sites(&mut self, at: Moment) -> Vec<Site> {
        let device = &self.inputs[self.place.file].snapshot.devices[self.place.device];
        let mut by_site: HashMap<u32, Totals> = HashMap::new();
        for site in sites(device, &self.place.track.lifetimes, at) {
            let stack = self.tables.stack(self.translation, site.stack, site.category);
            by_site.entry(self.tables.site_of(stack)).or_default().add(&site.totals);
        }
        let mut sites: Vec<_> = by_site.into_iter().collect();
        sites.sort_unstable_by_key(|&(site, _)| site);
        let named = sites.into_iter();
        let named = named.map(|(number, totals)| {
            let text = self.tables.site_text(number);
            Site { number, text, totals }
        });
        named.collect()
    }

    /// Returns the time since the start.
    fn time_of(&self, page_moment: u32) -> String {
        let times = &self.place.track.times_us;
        let begin = times.first().copied().unwrap_or(0);
        let at = times.get((page_moment as usize).saturating_sub(1)).copied().unwrap_or(begin);
        time(at - begin)
    }

    fn has_history(&self) -> bool {
        self.place.track.times_us.len() > 1
    }

    fn peak(&self, sites: &[Site]) -> Option<About> {
        let track = &self.place.track;
        let (moment, held) = (track.page_moment(track.lifetimes.peak), track.lifetimes.peak_bytes);
        let most = most(sites, |totals| totals.peak_bytes)?;
        let (begin, when) = match self.has_history() {
            true => ("Peak: ", format!(", {} after start", self.time_of(moment))),
            false => ("", String::new()),
        };
        // Among many call sites, the one that holds most may hold nearly nothing.
        let held_most = most.totals.peak_bytes;
        let (number, holder) = match held_most.saturating_mul(100) >= held {
            true => {
                (Some(most.number), format!("{} of it from {}", share(held_most, held), most.text))
            }
            false => (None, "no call site holds 1 % of it".to_string()),
        };
        let reserved = bytes(track.reserved_at(moment));
        let text = format!("{begin}{} live{when}; {holder}; {reserved} reserved.", bytes(held));
        Some((number, held, text))
    }

    /// Describes the failed calls that the program did not recover from, or those that it did.
    fn out_of_memory(&mut self, overcome: bool) -> Option<About> {
        let place = self.place;
        let failed =
            (0..place.track.ooms.len()).filter(|&at| is_overcome(&place.failures[at]) == overcome);
        let failed: Vec<usize> = failed.collect();
        let (&first, &last) = (failed.first()?, failed.last()?);
        let chosen = if overcome { first } else { last };
        let oom = place.track.ooms[chosen];
        let request = request_text(&oom, place.failures[chosen].as_ref());
        let requester = match oom.stack {
            StackId::NONE => String::new(),
            _ => {
                let site = self.tables.site_of(place.oom_stacks[chosen]);
                format!(", in {}", self.tables.site_text(site))
            }
        };
        if overcome {
            let calls = plural(failed.len() as u64, "call");
            let text = format!(
                "{calls} failed for lack of memory, but the program recovered by a retry or a smaller request. \
                 The first, {} after start, {request}{requester}.",
                self.time_of(oom.event + 1)
            );
            return Some((None, oom.requested_bytes, text));
        }
        let sites = self.sites(oom.moment);
        let holder = most(&sites, |totals| totals.live_bytes);
        let site = holder.map(|site| site.number);
        let holder = holder.map(|site| {
            format!("; largest holder: {}, {}", site.text, bytes(site.totals.live_bytes))
        });
        let others = match failed.len() as u64 - 1 {
            0 => String::new(),
            others => format!(" {} failed before.", plural(others, "call")),
        };
        let why = place.oom_whys.get(chosen).map(|&why| self.tables.text_of(why).to_string());
        let why = why.and_then(|why| Some(format!(" {}", capital(why.split_once(": ")?.1))));
        let text = format!(
            "Out of memory, {} after start: {request}{requester}, with {} free on the device{}.{}{others}",
            self.time_of(oom.event + 1),
            bytes(oom.free_bytes),
            holder.unwrap_or_default(),
            why.unwrap_or_default(),
        );
        Some((site, oom.requested_bytes, text))
    }

    /// Reports whether other options would have served the failed requests. If none would have, the
    /// section names the call sites that hold most.
    fn fit(&self) -> Option<About> {
        let fit = self.fits.of_device(self.place.file, self.place.device)?;
        let text = format!("In a replay, the run {}.", fit.verdict_text()?);
        Some((None, fit.requests.peak_bytes(), text))
    }

    fn never_freed(&self, sites: &[Site]) -> Option<About> {
        if !self.has_history() {
            return None; // frees are unknown
        }
        let Some(most) = most(sites, |totals| totals.end_bytes) else {
            let text = "Every block was freed before the snapshot was taken.";
            return Some((None, 0, text.to_string()));
        };
        let (held, blocks) = sum(sites, |totals| (totals.end_bytes, totals.end_count));
        let share = match most.totals.end_bytes {
            all if all == held => "all".to_string(),
            part => format!("most ({})", bytes(part)),
        };
        let were = if blocks == 1 { "was" } else { "were" };
        let fate = match self.inputs[self.place.file].snapshot.setting("taken") {
            Some("asked") => "live when the snapshot was requested",
            Some("shortage") => "live when memory ran out",
            Some("signal") => "live when a signal ended the program",
            // The snapshot is from the end of the program, or its trigger is unknown.
            _ => "never freed",
        };
        let blocks = plural(blocks, "block");
        let (all, from) = (bytes(held), &most.text);
        let text = format!("{blocks}, {all}, {were} {fate}: {share} from {from}.");
        Some((Some(most.number), held, text))
    }

    /// Describes the call site that leaves blocks throughout the run.
    fn grows(&mut self) -> Option<About> {
        let tables = &*self.tables;
        let grown = growth::of_sites(self.place, |stack| tables.site_of(stack))?;
        let (name, held) = (self.tables.site_text(grown.site), bytes(grown.bytes));
        let blocks = plural(grown.blocks, "block");
        let freed = if grown.is_freed_at_end {
            "none freed before the program ended"
        } else {
            "none freed"
        };
        let text = format!(
            "{name} keeps growing: {blocks}, {held}, allocated throughout the run, {freed}."
        );
        Some((Some(grown.site), grown.bytes, text))
    }

    fn range_grows(&self) -> Option<About> {
        let (bytes, text) = growth::of_ranges(self.place)?;
        Some((None, bytes, text))
    }

    fn temporary(&self, sites: &[Site]) -> Option<About> {
        let most = most(sites, |totals| totals.temporary_count)?;
        let (_, number) = sum(sites, |totals| (totals.temporary_bytes, totals.temporary_count));
        let (_, all) = sum(sites, |totals| (totals.allocated_bytes, totals.allocated_count));
        // Every program has a few temporary allocations.
        if number < TEMPORARY_COUNT_LEAST || number < all / TEMPORARY_SHARE_LEAST {
            return None;
        }
        let text = format!(
            "{} of {} allocations ({}) were temporary (freed after at most {OTHERS_BETWEEN_MAX} other \
             allocation): most ({}) from {}.",
            count(number),
            count(all),
            share(number, all),
            count(most.totals.temporary_count),
            most.text,
        );
        Some((Some(most.number), number, text))
    }

    fn fragmentation(&self) -> Option<About> {
        let segments = &self.inputs[self.place.file].snapshot.devices[self.place.device].segments;
        let usage = Usage::of_all(segments);
        let (split, reserved) = (usage.stuck_bytes, usage.reserved_bytes);
        (split > reserved / FRAGMENTATION_SHARE_LEAST).then(|| {
            let (free, all, share) = (bytes(split), bytes(reserved), share(split, reserved));
            let text = format!(
                "Fragmentation: {free} of the {all} reserved at the end ({share}) are free, but \
                 between blocks in use."
            );
            (None, split, text)
        })
    }

    /// Describes since when no allocation reached the driver, and which one ended the previous
    /// steady state.
    fn steady(&mut self) -> Option<About> {
        let device = &self.inputs[self.place.file].snapshot.devices[self.place.device];
        let asked =
            |entry: &Entry| matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap);
        let asked: Vec<Entry> = device.entries.iter().filter(asked).collect();
        let quiet_us = device.entries.last()?.time_us.saturating_sub(asked.last()?.time_us);
        let ended = asked.windows(2).rev().find_map(|two| {
            let before_us = two[1].time_us.saturating_sub(two[0].time_us);
            (before_us >= STEADY_US).then_some((two[1], before_us))
        });
        let now = (quiet_us >= STEADY_US)
            .then(|| format!("No allocation reached the driver in the last {}", time(quiet_us)));
        let ended = ended.map(|(entry, before_us)| {
            let stack = self.tables.stack(self.translation, entry.stack, entry.category);
            let site = self.tables.site_of(stack);
            (site, format!("of {}, was ended by {}", time(before_us), self.tables.site_text(site)))
        });
        let site = ended.as_ref().map(|(site, _)| *site);
        let text = match (now, ended) {
            (Some(now), Some((_, ended))) => format!("{now}; the previous steady state, {ended}."),
            (Some(now), None) => format!("{now}."),
            (None, Some((_, ended))) => format!(
                "The last steady state without an allocation that reached the driver, {ended}."
            ),
            (None, None) => return None,
        };
        Some((site, quiet_us, text))
    }
}

/// A state is steady if no allocation reached the driver for this long, as in the statistics.
const STEADY_US: u64 = 1_000_000;

/// Fewest temporary allocations worth a finding.
const TEMPORARY_COUNT_LEAST: u64 = 10;
/// Smallest share of temporary allocations worth a finding, as one in this many.
const TEMPORARY_SHARE_LEAST: u64 = 100;
const FRAGMENTATION_SHARE_LEAST: u64 = 10;

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the site with the largest number. Returns `None` if all are 0.
fn most(sites: &[Site], number: impl Fn(&Totals) -> u64) -> Option<&Site> {
    let counted = sites.iter().filter(|site| number(&site.totals) > 0);
    counted.rev().max_by_key(|site| number(&site.totals))
}

fn sum(sites: &[Site], numbers: impl Fn(&Totals) -> (u64, u64)) -> (u64, u64) {
    sites.iter().map(|site| numbers(&site.totals)).fold((0, 0), |sums, numbers| {
        (sums.0.saturating_add(numbers.0), sums.1.saturating_add(numbers.1))
    })
}
