//! Control commands of another process to a running program: one record in the program's live file
//! (`page` describes the exchange). The program does not trust the sender: it refuses anything that
//! is not one of these commands.

use cachealloc_options::{Record, StackContext, StackKind, Word};

use crate::breakdown::NvmlReading;

/// Size of a record.
pub const COMMAND_BYTES: usize = 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlCommand {
    Record(Change),
    /// Release free memory to the driver.
    Trim {
        device: Option<i32>,
    },
    /// Limit what the process may hold of each device.
    Limit {
        device: Option<i32>,
        /// The limit, or `None` to remove it.
        bytes: Option<u64>,
    },
    /// Ask the driver for what the breakdowns of the statistics need (`breakdown`).
    Measure,
    /// Keep NVML's reading for the process, for the snapshot that is requested next.
    Note {
        device: i32,
        nvml_reading: NvmlReading,
    },
    /// Answer how much of this GPU the process could release for one that lacks memory.
    Offer {
        gpu: GpuId,
    },
    /// Release that much of it, the longest unused first.
    Give {
        gpu: GpuId,
        mebibytes: u32,
    },
}

/// UUID of a GPU or of a partition. Device numbers identify a GPU only within a process.
pub type GpuId = [u8; 16];

/// Changes of the recording. A field that is `None` keeps its setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    pub record: Record,
    pub context: Option<StackContext>,
    pub stacks: Option<StackKind>,
    pub max_entries: Option<u64>,
    /// The only device whose memory is recorded, or `Some(None)` for all devices.
    pub device: Option<Option<i32>>,
    /// Forgets what was recorded so far.
    pub clear: bool,
}

const RECORD: u32 = 1;
const TRIM: u32 = 2;
const LIMIT: u32 = 3;
const MEASURE: u32 = 4;
const OFFER: u32 = 5;
const GIVE: u32 = 6;
const NOTE: u32 = 7;
/// Encodes a setting that does not change.
const AS_IT_IS: u64 = u64::MAX;
const DEVICE_AS_IT_IS: i32 = -2;
const ALL_DEVICES: i32 = -1;

impl ControlCommand {
    pub fn to_bytes(&self) -> [u8; COMMAND_BYTES] {
        let (kind, device, number, words) = match *self {
            ControlCommand::Offer { gpu } => return of_gpu(OFFER, gpu, 0),
            ControlCommand::Give { gpu, mebibytes } => return of_gpu(GIVE, gpu, mebibytes),
            ControlCommand::Trim { device } => (TRIM, device.unwrap_or(ALL_DEVICES), 0, [0; 4]),
            ControlCommand::Limit { device, bytes } => {
                (LIMIT, device.unwrap_or(ALL_DEVICES), bytes.unwrap_or(AS_IT_IS), [0; 4])
            }
            ControlCommand::Measure => (MEASURE, ALL_DEVICES, 0, [0; 4]),
            ControlCommand::Note { device, nvml_reading } => {
                (NOTE, device, nvml_reading.bytes(), [kind_of(nvml_reading), 0, 0, 0])
            }
            ControlCommand::Record(change) => {
                let device =
                    change.device.map_or(DEVICE_AS_IT_IS, |one| one.unwrap_or(ALL_DEVICES));
                let words = [
                    change.record.number(),
                    change.context.map_or(NOT_SAID, Word::number),
                    change.stacks.map_or(NOT_SAID, Word::number),
                    u8::from(change.clear),
                ];
                (RECORD, device, change.max_entries.unwrap_or(AS_IT_IS), words)
            }
        };
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&device.to_ne_bytes());
        bytes[8..16].copy_from_slice(&number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&words);
        bytes
    }

    /// Decodes a command. Returns `None` for an unknown command, or one that was withdrawn.
    pub fn from_bytes(bytes: &[u8; COMMAND_BYTES]) -> Option<ControlCommand> {
        let short = |at: usize| bytes[at..at + 4].try_into().unwrap_or_default();
        let device = i32::from_ne_bytes(short(4));
        let number = u64::from_ne_bytes(bytes[8..16].try_into().unwrap_or_default());
        let one_or_all = || match device {
            ALL_DEVICES => Some(None),
            0.. => Some(Some(device)),
            _ => None,
        };
        match u32::from_ne_bytes(short(0)) {
            TRIM => Some(ControlCommand::Trim { device: one_or_all()? }),
            LIMIT => {
                let bytes = (number != AS_IT_IS).then_some(number);
                // 0 means no limit elsewhere; here it would refuse every request of the program.
                (bytes != Some(0)).then_some(ControlCommand::Limit { device: one_or_all()?, bytes })
            }
            RECORD => Some(ControlCommand::Record(Change {
                record: Word::of_number(bytes[16])?,
                context: word(bytes[17])?,
                stacks: word(bytes[18])?,
                max_entries: (number != AS_IT_IS).then_some(number),
                device: if device == DEVICE_AS_IT_IS { None } else { Some(one_or_all()?) },
                clear: bytes[19] != 0,
            })),
            MEASURE => Some(ControlCommand::Measure),
            NOTE => Some(ControlCommand::Note {
                device: one_or_all()??,
                nvml_reading: said_of(bytes[16], number)?,
            }),
            OFFER => Some(ControlCommand::Offer { gpu: bytes[4..20].try_into().ok()? }),
            GIVE => Some(ControlCommand::Give {
                gpu: bytes[4..20].try_into().ok()?,
                mebibytes: u32::from_ne_bytes(short(20)),
            }),
            _ => None,
        }
    }
}

fn of_gpu(kind: u32, gpu: GpuId, mebibytes: u32) -> [u8; COMMAND_BYTES] {
    let mut bytes = [0; COMMAND_BYTES];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..20].copy_from_slice(&gpu);
    bytes[20..].copy_from_slice(&mebibytes.to_ne_bytes());
    bytes
}

fn kind_of(nvml_reading: NvmlReading) -> u8 {
    match nvml_reading {
        NvmlReading::Process(_) => 1,
        NvmlReading::Others(_) => 2,
    }
}

fn said_of(kind: u8, bytes: u64) -> Option<NvmlReading> {
    let all = [NvmlReading::Process(bytes), NvmlReading::Others(bytes)];
    all.into_iter().find(|nvml_reading| kind_of(*nvml_reading) == kind)
}

/// Encodes a word that was not given.
const NOT_SAID: u8 = u8::MAX;

/// Returns the word of this number, or `Some(None)` if none was given. Returns `None` if there is
/// no such word.
fn word<T: Word>(number: u8) -> Option<Option<T>> {
    if number == NOT_SAID { Some(None) } else { T::of_number(number).map(Some) }
}
