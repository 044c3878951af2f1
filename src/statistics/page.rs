//! The file by which another process communicates with a running one: a head of 640 bytes, followed
//! by the report as JSON. It is written on request only:
//!
//! 1. a reader adds 1 to `requests`, then to `doorbell`, both atomically in a shared mapping of the
//!    file, and wakes the waiters on `doorbell` (a futex that is not private). A reader that wants
//!    the call sites, whose names take time to find, adds 1 to `site_requests` before, and repeats
//!    the request if the report lacks them because another reader's request consumed the count;
//! 2. the process, which sleeps on `doorbell`, writes the report, sets `answered` to the number of
//!    requests that it has seen, and wakes the waiters on `answered`;
//! 3. the reader copies head and text, and then the head again. The copy is one consistent report
//!    if `sequence` is the same even number in both.
//!
//! A control command (`commands`) goes the same way. Its sender holds a lock of the file (`flock`)
//! from before the command is written until it is answered. The sender writes the command, adds 1
//! to `commands` and to `doorbell`, and waits for `done`. The process writes the number into
//! `begun`, and only then reads the command. Afterwards it sets `result` to 0 or an `errno`, and
//! then `done` to the number. A sender that gives up clears the command; if it then finds another
//! number in `begun`, the command is not executed. `sender` is the sender's part of this.
//!
//! A process that lacks memory asks for an *offer*: the answer is in `offered` before `done`. It
//! then asks for memory to be released, which the process accepts by `done`. Once it has released
//! what it could, the process adds 1 to `grants` and wakes the waiters on it.
//!
//! A process whose requests wait for memory repeatedly writes the first one for each GPU into
//! `waiters`.
//!
//! All numbers are in the machine's byte order. A file whose process is gone, or has another start,
//! is stale, because process ids are reused. So is one that its process does not map: a program
//! replaced by `exec` keeps number and start. The head is written once the file is mapped.
//! Processes of another namespace cannot be distinguished, unless `/proc` shows them.

use crate::control::{COMMAND_BYTES, GpuId};

/// First bytes of every such file.
pub const MAGIC: [u8; 8] = *b"cachLIVE";
/// Version of the layout described above. The JSON may gain keys without a new version.
pub const LAYOUT: u32 = 5;
/// Offset of the text.
pub const HEAD_BYTES: usize = WAITERS_OFFSET + WAITERS_MAX * Waiter::BYTES;
/// Offsets of the words that others wait for, or change.
pub const DOORBELL_OFFSET: usize = 32;
pub const REQUESTS_OFFSET: usize = 36;
pub const ANSWERED_OFFSET: usize = 40;
pub const SEQUENCE_OFFSET: usize = 44;
pub const TEXT_BYTES_OFFSET: usize = 48;
pub const SITE_REQUESTS_OFFSET: usize = 64;
pub const COMMANDS_OFFSET: usize = 68;
pub const BEGUN_OFFSET: usize = 72;
pub const DONE_OFFSET: usize = 76;
pub const RESULT_OFFSET: usize = 80;
pub const COMMAND_OFFSET: usize = 88;
pub const OFFERED_OFFSET: usize = 112;
pub const GRANTS_OFFSET: usize = 120;
pub const WAITERS_OFFSET: usize = 128;
/// Maximum number of GPUs of a machine.
pub const WAITERS_MAX: usize = 16;

/// Beginning of the file's name in the folder of shared memory.
pub const NAME_BEGIN: &str = "cachealloc-";

/// Owner of a file. The start distinguishes it from a later process with the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Number in the process's own namespace. Other namespaces use other numbers.
    pub process_id: u32,
    /// Start in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start: u64,
    /// Inode of `/proc/PID/ns/pid`.
    pub namespace: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub owner: Owner,
    pub doorbell: u32,
    pub requests: u32,
    pub answered: u32,
    /// Odd while the text is being written.
    pub sequence: u32,
    pub text_bytes: u64,
    /// When the text was made, by the monotonic clock.
    pub time_ns: u64,
    /// Number of requests for call sites. A report has them if this changed since the last one.
    pub site_requests: u32,
    /// Numbers of control commands sent, begun and done so far, and the result of the last one.
    pub commands: u32,
    pub begun: u32,
    pub done: u32,
    pub result: u32,
    /// The last command, as encoded by `ControlCommand`.
    pub command: [u8; COMMAND_BYTES],
    /// Answer to the last command for an offer.
    pub offered: Offer,
    /// Number of grants so far.
    pub grants: u32,
    pub waiters: Waiters,
}

/// One waiter for each GPU.
pub type Waiters = [Waiter; WAITERS_MAX];

/// A request that waits for memory of a GPU, or zeros for none. Times are in nanoseconds of the
/// monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiter {
    pub gpu: GpuId,
    pub since_ns: u64,
    /// When it last looked for memory. A process that is stopped or gone does not look.
    pub looked_ns: u64,
}

impl Waiter {
    pub const BYTES: usize = 32;

    pub fn to_bytes(&self) -> [u8; Waiter::BYTES] {
        let mut bytes = [0; Waiter::BYTES];
        bytes[..16].copy_from_slice(&self.gpu);
        bytes[16..24].copy_from_slice(&self.since_ns.to_ne_bytes());
        bytes[24..].copy_from_slice(&self.looked_ns.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Waiter {
        let long = |offset: usize| {
            u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap_or_default())
        };
        Waiter {
            gpu: bytes[..16].try_into().unwrap_or_default(),
            since_ns: long(16),
            looked_ns: long(24),
        }
    }
}

/// Memory that a process could release for one that lacks memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// All free memory.
    pub free_mebibytes: u32,
    /// The part that the process has not used for a while.
    pub idle_mebibytes: u32,
}

impl Offer {
    pub fn to_bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.free_mebibytes.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.idle_mebibytes.to_ne_bytes());
        bytes
    }
}

impl Head {
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let Owner { process_id, start, namespace } = self.owner;
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        for (offset, word) in [
            (8, LAYOUT),
            (12, process_id),
            (DOORBELL_OFFSET, self.doorbell),
            (REQUESTS_OFFSET, self.requests),
            (ANSWERED_OFFSET, self.answered),
            (SEQUENCE_OFFSET, self.sequence),
            (SITE_REQUESTS_OFFSET, self.site_requests),
            (COMMANDS_OFFSET, self.commands),
            (BEGUN_OFFSET, self.begun),
            (DONE_OFFSET, self.done),
            (RESULT_OFFSET, self.result),
            (GRANTS_OFFSET, self.grants),
        ] {
            bytes[offset..offset + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for (offset, word) in [
            (16, start),
            (24, namespace),
            (TEXT_BYTES_OFFSET, self.text_bytes),
            (TEXT_BYTES_OFFSET + 8, self.time_ns),
        ] {
            bytes[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[COMMAND_OFFSET..COMMAND_OFFSET + COMMAND_BYTES].copy_from_slice(&self.command);
        bytes[OFFERED_OFFSET..OFFERED_OFFSET + 8].copy_from_slice(&self.offered.to_bytes());
        let waiters = self.waiters.iter().flat_map(Waiter::to_bytes);
        bytes[WAITERS_OFFSET..].iter_mut().zip(waiters).for_each(|(byte, of)| *byte = of);
        bytes
    }

    /// Returns a head without any requests.
    pub fn new(owner: Owner) -> Head {
        Head {
            owner,
            doorbell: 0,
            requests: 0,
            answered: 0,
            sequence: 0,
            text_bytes: 0,
            time_ns: 0,
            site_requests: 0,
            commands: 0,
            begun: 0,
            done: 0,
            result: 0,
            command: [0; COMMAND_BYTES],
            offered: Offer::default(),
            grants: 0,
            waiters: Waiters::default(),
        }
    }

    /// Reads a head. Returns `None` if the file is of another kind or layout.
    pub fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let short = |offset: usize| {
            let word = bytes[offset..offset + 4].try_into();
            u32::from_ne_bytes(word.unwrap_or_default())
        };
        let long = |offset: usize| {
            let word = bytes[offset..offset + 8].try_into();
            u64::from_ne_bytes(word.unwrap_or_default())
        };
        (bytes[..8] == MAGIC && short(8) == LAYOUT).then(|| Head {
            owner: Owner { process_id: short(12), start: long(16), namespace: long(24) },
            doorbell: short(DOORBELL_OFFSET),
            requests: short(REQUESTS_OFFSET),
            answered: short(ANSWERED_OFFSET),
            sequence: short(SEQUENCE_OFFSET),
            text_bytes: long(TEXT_BYTES_OFFSET),
            time_ns: long(TEXT_BYTES_OFFSET + 8),
            site_requests: short(SITE_REQUESTS_OFFSET),
            commands: short(COMMANDS_OFFSET),
            begun: short(BEGUN_OFFSET),
            done: short(DONE_OFFSET),
            result: short(RESULT_OFFSET),
            command: bytes[COMMAND_OFFSET..COMMAND_OFFSET + COMMAND_BYTES]
                .try_into()
                .unwrap_or_default(),
            offered: Offer {
                free_mebibytes: short(OFFERED_OFFSET),
                idle_mebibytes: short(OFFERED_OFFSET + 4),
            },
            grants: short(GRANTS_OFFSET),
            waiters: core::array::from_fn(|index| {
                Waiter::from_bytes(&bytes[WAITERS_OFFSET + index * Waiter::BYTES..])
            }),
        })
    }
}

/// Returns field 22 of the text of `/proc/PID/stat`. The second field is the program's name, which
/// may contain anything, including brackets and spaces.
pub fn start_of(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
