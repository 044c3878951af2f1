//! Where the device memory of a process is: rows that add up to what the device's driver says of it, and the
//! rest, which no call tells apart. The library collects the rows ([`Account`]); with the sum they are settled
//! ([`Account::settle`]) and shown ([`Line`]). Statistics and snapshots carry the same rows, the latter as texts by name.

mod lines;

use std::collections::BTreeMap;

pub use lines::Line;

/// In the place of a device's number: the host.
pub const HOST: i32 = -1;

/// What the texts of a snapshot are named, followed by a device, a part, and perhaps a library.
const TEXT_BEGIN: &str = "memory";
const TOTAL: &str = "total";
const IN_USE: &str = "in_use";
const AGE_MS: &str = "age_ms";
const MISSED: &str = "missed";

/// What the memory of a row is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    CacheHeld,
    /// Freed, but a stream may still use it.
    CacheWaiting,
    CacheFree,
    Linear,
    Arrays,
    Virtual,
    PoolsHeld,
    PoolsFree,
    Graphs,
    /// Before it is settled: all that was in use on the device when the first context had been made.
    Context,
    /// The driver's own, taken by calls that load code, by first launches, by limits, and for objects.
    Modules,
    Launches,
    Limits,
    Objects,
    LocalMemory,
    MallocHeap,
    PrintfBuffer,
    GraphNodes,
    Managed,
    Pinned,
    /// Freed by the program, and kept for its next request.
    PinnedFree,
}

/// How the bytes of a row are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Added up from the calls of the program.
    Counted,
    /// The driver says it.
    Asked,
    /// What is in use on the device, at two times or of several processes.
    Difference,
}

/// What a row means for the sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It is added.
    Sum,
    /// It is at most so much of the rest: the driver reserves it when a kernel needs it.
    Rest,
    /// It is not known to be on the device.
    Beside,
}

/// Bytes of one part, of one library where that is recorded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    pub part: Part,
    /// Empty: not told apart.
    pub library: String,
    pub bytes: u64,
}

/// What is known of the memory of a device, or of the host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Its number in the process, or [`HOST`].
    pub device: i32,
    pub total_bytes: Option<u64>,
    /// By all processes.
    pub in_use_bytes: Option<u64>,
    /// How long before the rest the driver was asked; None: it was not.
    pub age_ms: Option<u64>,
    /// What NVML said at that moment, if it was asked.
    pub said: Option<Said>,
    /// How many calls took what has no row, because it could not be measured.
    pub missed_count: u64,
    pub rows: Vec<Row>,
}

/// What the rows add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// What the driver says of the process.
    Process(u64),
    /// What is in use on the device, less what the driver says of the other processes.
    LessOthers(u64),
    /// What is in use on the device, by all processes.
    Device(u64),
}

/// What NVML says of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// The bytes of the process.
    Process(u64),
    /// Those of all other processes together, where it does not say the former.
    Others(u64),
}

/// An account that adds up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    pub device: i32,
    pub total_bytes: Option<u64>,
    pub age_ms: Option<u64>,
    pub missed_count: u64,
    pub sum: Option<Sum>,
    /// All rows, in the order of their parts.
    pub rows: Vec<Row>,
    /// What is in the sum and in no row; negative if the process changed meanwhile. None without a sum.
    pub rest_bytes: Option<i64>,
}

macro_rules! parts {
    ($($part:ident = $word:literal, $title:literal, $method:ident, $place:ident;)*) => {
        impl Part {
            pub const ALL: &'static [Part] = &[$(Part::$part,)*];

            /// In JSON and in snapshots.
            pub fn word(self) -> &'static str {
                match self { $(Part::$part => $word,)* }
            }

            /// For people.
            pub fn title(self) -> &'static str {
                match self { $(Part::$part => $title,)* }
            }

            pub fn method(self) -> Method {
                match self { $(Part::$part => Method::$method,)* }
            }

            pub fn place(self) -> Place {
                match self { $(Part::$part => Place::$place,)* }
            }
        }
    };
}

parts! {
    CacheHeld = "cache_held", "cache: held by the program", Counted, Sum;
    CacheWaiting = "cache_waiting", "cache: freed, a stream may still use it", Counted, Sum;
    CacheFree = "cache_free", "cache: free", Counted, Sum;
    Linear = "linear", "driver: linear and pitched memory", Counted, Sum;
    Arrays = "arrays", "driver: arrays", Counted, Sum;
    Virtual = "virtual", "driver: physical memory to be mapped", Counted, Sum;
    PoolsHeld = "pools_held", "driver's pools: held by the program", Counted, Sum;
    PoolsFree = "pools_free", "driver's pools: free", Asked, Sum;
    Graphs = "graphs", "graphs: memory nodes", Asked, Sum;
    Context = "context", "first context, if other processes have what they had then", Difference, Sum;
    Modules = "modules", "modules and kernels, as they were loaded", Difference, Sum;
    Launches = "launches", "first launches of kernels: their code, local memory, heaps", Difference, Sum;
    Limits = "limits", "heaps and local memory, as cuCtxSetLimit set them", Difference, Sum;
    Objects = "objects", "streams and graphs, as they were made", Difference, Sum;
    LocalMemory = "local_memory", "local memory of kernels", Asked, Rest;
    MallocHeap = "malloc_heap", "heap of malloc in kernels", Asked, Rest;
    PrintfBuffer = "printf_buffer", "buffer of printf in kernels", Asked, Rest;
    GraphNodes = "graph_nodes", "memory nodes of graphs, which may share memory and have none before a launch", Counted, Beside;
    Managed = "managed", "managed memory, wherever it is", Counted, Beside;
    Pinned = "pinned", "pinned and registered memory of the host", Counted, Beside;
    PinnedFree = "pinned_free", "pinned memory of the host, cached: free", Counted, Beside;
}

impl Part {
    /// Whether it is what calls took, as the difference between before and after.
    fn is_taken(self) -> bool {
        self.method() == Method::Difference && self != Part::Context
    }

    pub fn of_word(word: &str) -> Option<Part> {
        Part::ALL.iter().copied().find(|part| part.word() == word)
    }
}

impl Method {
    pub fn word(self) -> &'static str {
        match self {
            Method::Counted => "counted",
            Method::Asked => "asked",
            Method::Difference => "difference",
        }
    }
}

impl Place {
    pub fn word(self) -> &'static str {
        match self {
            Place::Sum => "sum",
            Place::Rest => "rest",
            Place::Beside => "beside",
        }
    }
}

impl Sum {
    pub fn bytes(self) -> u64 {
        match self {
            Sum::Process(bytes) | Sum::LessOthers(bytes) | Sum::Device(bytes) => bytes,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Sum::Process(_) => "process",
            Sum::LessOthers(_) => "less_others",
            Sum::Device(_) => "device",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Sum::Process(_) => "of the process, as NVML says",
            Sum::LessOthers(_) => "in use on the device, less the other processes",
            Sum::Device(_) => "in use on the device, by all processes",
        }
    }
}

impl Said {
    pub fn bytes(self) -> u64 {
        match self {
            Said::Process(bytes) | Said::Others(bytes) => bytes,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Said::Process(_) => "process",
            Said::Others(_) => "others",
        }
    }

    fn of_word(word: &str, bytes: u64) -> Option<Said> {
        let all = [Said::Process(bytes), Said::Others(bytes)];
        all.into_iter().find(|said| said.word() == word)
    }

    /// `in_use_bytes`: of the device, by all processes. None: the others have more than that, or it is not known.
    pub fn sum(self, in_use_bytes: Option<u64>) -> Option<Sum> {
        match self {
            Said::Process(bytes) => Some(Sum::Process(bytes)),
            Said::Others(bytes) => in_use_bytes?.checked_sub(bytes).map(Sum::LessOthers),
        }
    }
}

impl Account {
    pub fn new(device: i32) -> Account {
        Account { device, ..Account::default() }
    }

    /// Adds to the row of this part and library; nothing where there is nothing.
    pub fn add(&mut self, part: Part, library: &str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.rows.iter_mut().find(|row| row.part == part && row.library == library) {
            Some(row) => row.bytes = row.bytes.saturating_add(bytes),
            None => self.rows.push(Row { part, library: library.to_string(), bytes }),
        }
    }

    /// All bytes of a part.
    pub fn bytes(&self, part: Part) -> u64 {
        self.rows.iter().filter(|row| row.part == part).map(|row| row.bytes).sum()
    }

    /// Makes the rows add up. None: the sum that NVML said with them, else what is in use on the device, where that is known.
    pub fn settle(&self, sum: Option<Sum>) -> Settled {
        let said = || self.said.and_then(|said| said.sum(self.in_use_bytes));
        let sum = sum.or_else(said).or(self.in_use_bytes.map(Sum::Device));
        let mut rows = self.rows.clone();
        rows.sort_by(|a, b| (a.part, b.bytes, &a.library).cmp(&(b.part, a.bytes, &b.library)));
        if let Some(sum) = sum {
            shorten_taken(&mut rows, sum.bytes());
        }
        if let Some(at) = rows.iter().position(|row| row.part == Part::Context) {
            let before = rows.remove(at);
            let left_bytes = sum.map_or(Some(0), |sum| sum.bytes().checked_sub(added(&rows)));
            let own = sum.and_then(|sum| self.context_bytes(before.bytes, sum));
            // What does not fit in is not what the context took: other processes have gone. But where the other rows
            // alone are more than the sum, they have grown since it was asked for, and nothing fits in.
            let own = own.map(|own| left_bytes.map_or(own, |left| own.min(left)));
            if let Some(bytes) = own.filter(|bytes| *bytes > 0) {
                rows.insert(at, Row { bytes, ..before });
            }
        }
        let rest = |sum: Sum| i128::from(sum.bytes()) - i128::from(added(&rows));
        let rest_bytes = sum.map(|sum| rest(sum).clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let Account { device, total_bytes, age_ms, missed_count, .. } = *self;
        Settled { device, total_bytes, age_ms, missed_count, sum, rows, rest_bytes }
    }

    /// What of the bytes that were in use when the first context had been made is in the sum: without the other
    /// processes, which are taken to have had then what they have now.
    fn context_bytes(&self, then_bytes: u64, sum: Sum) -> Option<u64> {
        match sum {
            Sum::Device(_) => Some(then_bytes),
            Sum::Process(own) | Sum::LessOthers(own) => {
                // A process that grew since the driver was asked may have more now than all had then.
                let others_bytes = self.in_use_bytes?.saturating_sub(own);
                then_bytes.checked_sub(others_bytes)
            }
        }
    }

    /// As texts by name.
    pub fn texts(&self) -> Vec<(String, String)> {
        let name = |what: &str| format!("{TEXT_BEGIN} {} {what}", self.device);
        let facts = [(TOTAL, self.total_bytes), (IN_USE, self.in_use_bytes), (AGE_MS, self.age_ms)];
        let facts = facts.into_iter().filter_map(|(what, fact)| Some((name(what), fact?)));
        let said = self.said.map(|said| (name(said.word()), said.bytes()));
        let rows = self.rows.iter().map(|Row { part, library, bytes }| {
            let what = format!("{} {library}", part.word());
            (name(what.trim_end()), *bytes)
        });
        let missed = (self.missed_count > 0).then(|| (name(MISSED), self.missed_count));
        facts
            .chain(said)
            .chain(missed)
            .chain(rows)
            .map(|(name, bytes)| (name, bytes.to_string()))
            .collect()
    }
}

fn added(rows: &[Row]) -> u64 {
    let added = rows.iter().filter(|row| row.part.place() == Place::Sum);
    added.fold(0, |all: u64, row| all.saturating_add(row.bytes))
}

/// What calls took fits into what is counted no more: other processes took memory meanwhile. The last rows lose it. Where what
/// is counted alone is more than the sum, that has grown since, and nothing is known of the others.
fn shorten_taken(rows: &mut Vec<Row>, sum_bytes: u64) {
    let is_taken = |row: &Row| row.part.is_taken();
    let taken: Vec<Row> = rows.iter().filter(|row| is_taken(row)).cloned().collect();
    let counted: Vec<Row> =
        rows.iter().filter(|row| !is_taken(row) && row.part != Part::Context).cloned().collect();
    let Some(left_bytes) = sum_bytes.checked_sub(added(&counted)) else { return };
    let mut over_bytes = added(&taken).saturating_sub(left_bytes);
    for row in rows.iter_mut().rev().filter(|row| is_taken(row)) {
        let bytes = row.bytes.min(over_bytes);
        row.bytes -= bytes;
        over_bytes -= bytes;
    }
    rows.retain(|row| row.bytes > 0 || !is_taken(row));
}

/// The accounts that are among these texts, by device. What is not understood is left out.
pub fn of_texts<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Account> {
    let mut all = BTreeMap::new();
    for (name, text) in texts {
        let mut words = name.splitn(4, ' ');
        let (begin, device, what) = (words.next(), words.next(), words.next());
        let device = device.and_then(|device| device.parse().ok());
        let (Some(TEXT_BEGIN), Some(device), Some(what)) = (begin, device, what) else { continue };
        let Ok(number) = text.parse() else { continue };
        let account: &mut Account = all.entry(device).or_insert_with(|| Account::new(device));
        match (what, Part::of_word(what)) {
            (TOTAL, _) => account.total_bytes = Some(number),
            (IN_USE, _) => account.in_use_bytes = Some(number),
            (AGE_MS, _) => account.age_ms = Some(number),
            (MISSED, _) => account.missed_count = number,
            (_, Some(part)) => account.add(part, words.next().unwrap_or(""), number),
            (word, None) => account.said = Said::of_word(word, number).or(account.said),
        }
    }
    all.into_values().collect()
}

impl Settled {
    pub fn in_place(&self, place: Place) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.part.place() == place)
    }

    /// What the rest is, for people.
    pub fn rest_title(&self) -> String {
        let has_context = self.rows.iter().any(|row| row.part == Part::Context);
        let context = if has_context { "" } else { "contexts, " };
        let others =
            if matches!(self.sum, Some(Sum::Device(_))) { "; other processes" } else { "" };
        let has_taken = self.rows.iter().any(|row| row.part.is_taken());
        let kernels = if has_taken { "" } else { "modules, lazily loaded kernels, their memory, " };
        let events = if has_taken { "what no call was seen to take, " } else { "" };
        format!("the rest: {context}{kernels}{events}rounding{others}")
    }

    /// The share of the sum that has a row: without those of differences, and with them. None without a sum.
    ///
    /// What other processes gave back since the first context was made is in its row, and what they took during a call in that
    /// of the call; nothing says how much that is: only the first share is certain.
    pub fn named_shares(&self) -> Option<[f64; 2]> {
        let sum = self.sum.filter(|sum| sum.bytes() != 0)?;
        let rest = self.rest_bytes?.max(0);
        let differences = self.rows.iter().filter(|row| row.part.method() == Method::Difference);
        let uncertain = differences.fold(0, |all: u64, row| all.saturating_add(row.bytes));
        let named = |unnamed: f64| (1.0 - unnamed / sum.bytes() as f64).max(0.0);
        Some([named(rest as f64 + uncertain as f64), named(rest as f64)])
    }
}
