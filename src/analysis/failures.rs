//! What a snapshot of ours says of calls that failed for lack of memory, beside their entries: by
//! which function, for what, and whether the program overcame it. The library writes it
//! (`out_of_memory/noted.rs`).

use cachealloc_history::OomKind;

use crate::model::{Action, Entry, Snapshot};

/// One failed call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub function: String,
    pub kind: OomKind,
    /// None: the call does not say.
    pub asked_bytes: Option<u64>,
    pub device: u32,
    /// Of its entry.
    pub time_us: Option<u64>,
    /// The same thread asked again, or for less, and got it.
    pub is_overcome: bool,
}

impl Failure {
    /// `cuMemCreate asked for 200 MiB of physical memory`.
    pub fn title(&self) -> String {
        format!("{} asked for {}", self.function, self.kind.amount(self.asked_bytes))
    }
}

/// All that the file tells of, in the order in which they failed. What cannot be read is left out.
pub fn failures(snapshot: &Snapshot) -> Vec<Failure> {
    let mut numbered: Vec<(u64, Failure)> = snapshot
        .settings_of("out_of_memory ")
        .filter_map(|(number, text)| Some((number.parse().ok()?, parse(text)?)))
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, failure)| failure).collect()
}

/// Whether the program overcame all those of which the file tells no more than their entries.
pub fn overcame_others(snapshot: &Snapshot) -> bool {
    snapshot.setting("out_of_memory_before") == Some("standing=0")
}

impl Failure {
    /// Of which only its entry is known, and that it was overcome.
    pub fn overcome(device: u32, entry: &Entry) -> Failure {
        Failure {
            function: "a call".to_string(),
            kind: OomKind::Other,
            asked_bytes: Some(entry.bytes),
            device,
            time_us: Some(entry.time_us),
            is_overcome: true,
        }
    }
}

/// The one of them that an entry of this device is of.
pub fn failure_of<'a>(failures: &'a [Failure], device: u32, entry: &Entry) -> Option<&'a Failure> {
    let is_it = |failure: &&Failure| {
        let bytes = failure.asked_bytes.unwrap_or(0).min(EXACT_MAX);
        let is_then = failure.time_us == Some(entry.time_us);
        failure.device == device && is_then && bytes == entry.bytes
    };
    (entry.action == Action::OutOfMemory).then(|| failures.iter().find(is_it)).flatten()
}

/// Entries have no larger number.
const EXACT_MAX: u64 = (1 << 53) - 1;

fn parse(text: &str) -> Option<Failure> {
    let of = |name: &str| {
        let mut pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    };
    let number = |name: &str| of(name).and_then(|value| value.parse::<u64>().ok());
    Some(Failure {
        function: of("function")?.to_string(),
        kind: OomKind::of_word(of("kind")?).unwrap_or(OomKind::Other),
        asked_bytes: number("bytes"),
        device: of("device")?.parse().ok()?,
        time_us: number("time_us"),
        is_overcome: of("overcome") == Some("true"),
    })
}
