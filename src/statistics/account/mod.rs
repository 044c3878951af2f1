//! Where the device memory of a process is: rows that add up to what the device's driver says of it, and the
//! rest, which no call tells apart. The library collects the rows ([`Account`]); with the sum they are settled
//! ([`Account::settle`]) and shown ([`Line`]). Statistics and snapshots carry the same rows, the latter as texts by name.

mod part;

mod settled;

mod texts;

mod lines;

pub use lines::Line;
pub use part::{Method, Part, Place};
pub use settled::Settled;
pub use texts::of_texts;

/// In the place of a device's number: the host.
pub const HOST: i32 = -1;

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

    pub(super) fn word(self) -> &'static str {
        match self {
            Said::Process(_) => "process",
            Said::Others(_) => "others",
        }
    }

    pub(super) fn of_word(word: &str, bytes: u64) -> Option<Said> {
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
}
