//! Breakdown of the device memory of a process: rows that add up to what the driver reports, and
//! the rest, which no call tells apart. The library collects the rows ([`Breakdown`]). Together
//! with the sum they are reconciled ([`Breakdown::reconcile`]) and shown ([`Line`]). Statistics and
//! snapshots carry the same rows, snapshots as named texts.

mod component;

mod reconciled;

mod texts;

mod lines;

pub use component::{Component, Method, Place};
pub use lines::Line;
pub use reconciled::Reconciled;
pub use texts::of_texts;

/// Number that stands for the host in place of a device's.
pub const HOST: i32 = -1;

/// Bytes of one component, and of one library if that is recorded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    pub component: Component,
    /// Name of the library, or empty if libraries are not told apart.
    pub library: String,
    pub bytes: u64,
}

/// Known memory of a device or of the host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Breakdown {
    /// Number of the device in the process, or [`HOST`].
    pub device: i32,
    pub total_bytes: Option<u64>,
    /// Bytes in use by all processes.
    pub in_use_bytes: Option<u64>,
    /// Age of the driver's answers when the rows were collected, or `None` if it was not asked.
    pub age_ms: Option<u64>,
    /// NVML's reading at that moment, if it was asked.
    pub nvml_reading: Option<NvmlReading>,
    /// Number of calls whose memory has no row, because it could not be measured.
    pub missed_count: u64,
    pub rows: Vec<Row>,
}

/// Sum of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sum {
    /// Bytes of the process, according to the driver.
    Process(u64),
    /// Bytes in use on the device, less those of the other processes according to the driver.
    LessOthers(u64),
    /// Bytes in use on the device, by all processes.
    Device(u64),
}

/// NVML's reading for a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvmlReading {
    /// Bytes of the process.
    Process(u64),
    /// Bytes of all other processes together, if NVML does not report the process.
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

    /// Returns the description for people.
    pub fn title(self) -> &'static str {
        match self {
            Sum::Process(_) => "of the process, according to NVML",
            Sum::LessOthers(_) => "in use on the device, minus other processes",
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

    /// Returns the sum, given the bytes in use on the device by all processes. Returns `None` if
    /// the others have more than that, or if it is unknown.
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

    /// Adds bytes to the row of this component and library. Adds no row for 0 bytes.
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

    /// Returns all bytes of a component.
    pub fn bytes(&self, component: Component) -> u64 {
        self.rows.iter().filter(|row| row.component == component).map(|row| row.bytes).sum()
    }
}
