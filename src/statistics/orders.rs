//! Orders of another process to a running program: one record in the program's live file (`page`
//! says how it gets there and back). The program takes nothing on trust: what is none of these
//! orders is refused.

use cachealloc_options::{Record, StackContext, StackKind, Word};

use crate::account::Said;

/// The bytes of a record.
pub const ORDER_BYTES: usize = 24;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Record(Change),
    /// Release free memory to the driver.
    Trim {
        device: Option<i32>,
    },
    /// Limit what the process may hold of each device.
    Limit {
        device: Option<i32>,
        /// None: no limit.
        bytes: Option<u64>,
    },
    /// Ask the driver what the accounts of the statistics need (`account`).
    Measure,
    /// Keep what NVML says of the process for the snapshot that is asked for next.
    Note {
        device: i32,
        said: Said,
    },
    /// Answer how much of this GPU the process could give to one that lacks memory.
    Offer {
        gpu: GpuId,
    },
    /// Give that much of it, the longest unused first.
    Give {
        gpu: GpuId,
        mebibytes: u32,
    },
}

/// Which GPU of the machine, or which part of one: its UUID. A number says that only within a process.
pub type GpuId = [u8; 16];

/// Changes of the recording. None: as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    pub record: Record,
    pub context: Option<StackContext>,
    pub stacks: Option<StackKind>,
    pub max_entries: Option<u64>,
    /// The only device whose memory is recorded; `Some(None)`: all are.
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
/// Where nothing is said of it.
const AS_IT_IS: u64 = u64::MAX;
const DEVICE_AS_IT_IS: i32 = -2;
const ALL_DEVICES: i32 = -1;

impl Order {
    pub fn to_bytes(&self) -> [u8; ORDER_BYTES] {
        let (kind, device, number, words) = match *self {
            Order::Offer { gpu } => return of_gpu(OFFER, gpu, 0),
            Order::Give { gpu, mebibytes } => return of_gpu(GIVE, gpu, mebibytes),
            Order::Trim { device } => (TRIM, device.unwrap_or(ALL_DEVICES), 0, [0; 4]),
            Order::Limit { device, bytes } => {
                (LIMIT, device.unwrap_or(ALL_DEVICES), bytes.unwrap_or(AS_IT_IS), [0; 4])
            }
            Order::Measure => (MEASURE, ALL_DEVICES, 0, [0; 4]),
            Order::Note { device, said } => (NOTE, device, said.bytes(), [kind_of(said), 0, 0, 0]),
            Order::Record(change) => {
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
        let mut bytes = [0; ORDER_BYTES];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&device.to_ne_bytes());
        bytes[8..16].copy_from_slice(&number.to_ne_bytes());
        bytes[16..20].copy_from_slice(&words);
        bytes
    }

    /// None: no order, or one that was taken back.
    pub fn from_bytes(bytes: &[u8; ORDER_BYTES]) -> Option<Order> {
        let short = |at: usize| bytes[at..at + 4].try_into().unwrap_or_default();
        let device = i32::from_ne_bytes(short(4));
        let number = u64::from_ne_bytes(bytes[8..16].try_into().unwrap_or_default());
        let one_or_all = || match device {
            ALL_DEVICES => Some(None),
            0.. => Some(Some(device)),
            _ => None,
        };
        match u32::from_ne_bytes(short(0)) {
            TRIM => Some(Order::Trim { device: one_or_all()? }),
            LIMIT => {
                let bytes = (number != AS_IT_IS).then_some(number);
                // 0 stands for no limit elsewhere, and would here keep the program from everything.
                (bytes != Some(0)).then_some(Order::Limit { device: one_or_all()?, bytes })
            }
            RECORD => Some(Order::Record(Change {
                record: Word::of_number(bytes[16])?,
                context: word(bytes[17])?,
                stacks: word(bytes[18])?,
                max_entries: (number != AS_IT_IS).then_some(number),
                device: if device == DEVICE_AS_IT_IS { None } else { Some(one_or_all()?) },
                clear: bytes[19] != 0,
            })),
            MEASURE => Some(Order::Measure),
            NOTE => Some(Order::Note { device: one_or_all()??, said: said_of(bytes[16], number)? }),
            OFFER => Some(Order::Offer { gpu: bytes[4..20].try_into().ok()? }),
            GIVE => Some(Order::Give {
                gpu: bytes[4..20].try_into().ok()?,
                mebibytes: u32::from_ne_bytes(short(20)),
            }),
            _ => None,
        }
    }
}

fn of_gpu(kind: u32, gpu: GpuId, mebibytes: u32) -> [u8; ORDER_BYTES] {
    let mut bytes = [0; ORDER_BYTES];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..20].copy_from_slice(&gpu);
    bytes[20..].copy_from_slice(&mebibytes.to_ne_bytes());
    bytes
}

fn kind_of(said: Said) -> u8 {
    match said {
        Said::Process(_) => 1,
        Said::Others(_) => 2,
    }
}

fn said_of(kind: u8, bytes: u64) -> Option<Said> {
    let all = [Said::Process(bytes), Said::Others(bytes)];
    all.into_iter().find(|said| kind_of(*said) == kind)
}

/// Of a word.
const NOT_SAID: u8 = u8::MAX;

/// The word of this number, or that none was given. None: there is no such word.
fn word<T: Word>(number: u8) -> Option<Option<T>> {
    if number == NOT_SAID { Some(None) } else { T::of_number(number).map(Some) }
}
