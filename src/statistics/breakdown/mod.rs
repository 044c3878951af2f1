//! Where the device memory of a process is: rows that add up to what the device's driver says of it, and the
//! rest, which no call tells apart. The library collects the rows ([`Breakdown`]); with the sum they are settled
//! ([`Breakdown::reconcile`]) and shown ([`Line`]). Statistics and snapshots carry the same rows, the latter as texts by name.

mod component;

mod reconciled;

mod texts;

mod lines;

pub use component::{Component, Method, Place};
pub use lines::Line;
pub use reconciled::Reconciled;
pub use texts::of_texts;

/// In the place of a device's number: the host.
pub const HOST: i32 = -1;

/// Bytes of one part, of one library where that is recorded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    pub component: Component,
    /// Empty: not told apart.
    pub library: String,
    pub bytes: u64,
}

/// What is known of the memory of a device, or of the host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Breakdown {
    /// Its number in the process, or [`HOST`].
    pub device: i32,
    pub total_bytes: Option<u64>,
    /// By all processes.
    pub in_use_bytes: Option<u64>,
    /// How long before the rest the driver was asked; None: it was not.
    pub age_ms: Option<u64>,
    /// What NVML said at that moment, if it was asked.
    pub nvml_reading: Option<NvmlReading>,
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
pub enum NvmlReading {
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

impl NvmlReading {
    pub fn bytes(self) -> u64 {
        match self {
            NvmlReading::Process(bytes) | NvmlReading::Others(bytes) => bytes,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            NvmlReading::Process(_) => "process",
            NvmlReading::Others(_) => "others",
        }
    }

    pub(super) fn of_word(word: &str, bytes: u64) -> Option<NvmlReading> {
        let all = [NvmlReading::Process(bytes), NvmlReading::Others(bytes)];
        all.into_iter().find(|nvml_reading| nvml_reading.word() == word)
    }

    /// `in_use_bytes`: of the device, by all processes. None: the others have more than that, or it is not known.
    pub fn sum(self, in_use_bytes: Option<u64>) -> Option<Sum> {
        match self {
            NvmlReading::Process(bytes) => Some(Sum::Process(bytes)),
            NvmlReading::Others(bytes) => in_use_bytes?.checked_sub(bytes).map(Sum::LessOthers),
        }
    }
}

impl Breakdown {
    pub fn new(device: i32) -> Breakdown {
        Breakdown { device, ..Breakdown::default() }
    }

    /// Adds to the row of this part and library; nothing where there is nothing.
    pub fn add(&mut self, component: Component, library: &str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.rows.iter_mut().find(|row| row.component == component && row.library == library)
        {
            Some(row) => row.bytes = row.bytes.saturating_add(bytes),
            None => self.rows.push(Row { component, library: library.to_string(), bytes }),
        }
    }

    /// All bytes of a part.
    pub fn bytes(&self, component: Component) -> u64 {
        self.rows.iter().filter(|row| row.component == component).map(|row| row.bytes).sum()
    }
}
