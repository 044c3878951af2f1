//! Calls that failed for lack of memory, as a snapshot of cachealloc records them besides their
//! entries: the function, the kind of memory, and whether the program recovered. The library writes
//! it in `out_of_memory/noted.rs`.

use cachealloc_history::OomKind;

use crate::model::{Action, Entry, Snapshot};

/// One failed call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub function: String,
    pub kind: OomKind,
    /// `None` if the call does not tell.
    pub asked_bytes: Option<u64>,
    pub device: u32,
    /// Time of its entry.
    pub time_us: Option<u64>,
    /// Whether the same thread then got this request, or a smaller one.
    pub is_overcome: bool,
}

impl Failure {
    /// Returns, for example, `cuMemCreate asked for 200 MiB of physical memory`.
    pub fn title(&self) -> String {
        format!("{} asked for {}", self.function, self.kind.amount(self.asked_bytes))
    }
}

/// Returns all recorded failures in the order in which they occurred. Settings that cannot be
/// parsed are skipped.
pub fn failures(snapshot: &Snapshot) -> Vec<Failure> {
    let mut numbered: Vec<(u64, Failure)> = snapshot
        .settings_of("out_of_memory ")
        .filter_map(|(number, text)| Some((number.parse().ok()?, parse(text)?)))
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, failure)| failure).collect()
}

/// Returns whether the program recovered from all failures of which the file has only the entries.
pub fn overcame_others(snapshot: &Snapshot) -> bool {
    snapshot.setting("out_of_memory_before") == Some("standing=0")
}

impl Failure {
    /// Creates a failure from its entry alone, which the program overcame.
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

/// Returns the failure to which this entry of the device belongs.
pub fn failure_of<'a>(failures: &'a [Failure], device: u32, entry: &Entry) -> Option<&'a Failure> {
    let is_it = |failure: &&Failure| {
        let bytes = failure.asked_bytes.unwrap_or(0).min(EXACT_MAX);
        let is_then = failure.time_us == Some(entry.time_us);
        failure.device == device && is_then && bytes == entry.bytes
    };
    (entry.action == Action::OutOfMemory).then(|| failures.iter().find(is_it)).flatten()
}

/// Largest number that an entry can hold exactly.
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
