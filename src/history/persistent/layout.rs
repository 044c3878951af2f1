//! Where what is in the file:
//!
//! ```text
//!   0             the head: words, by the numbers below
//!   OWNERS_AT     owners, OWNER_BYTES each
//!   TABLE_AT      one word for each chunk: what it holds and whose it is; 0: nothing
//!   chunks_at()   chunks, CHUNK_BYTES each
//! ```
//!
//! All numbers are as the machine has them. The file is sparse: it is as large as it may ever become.

use crate::entry::StackId;
use crate::rows::CHUNK_ROWS;

/// The first bytes of every such file.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"cachHIST");
/// Changes with what is said here.
pub const LAYOUT: u64 = 2;

/// Words of the head.
pub const WORD_MAGIC: usize = 0;
pub const WORD_LAYOUT: usize = 1;
pub const WORD_PROCESS: usize = 2;
pub const WORD_START: usize = 3;
pub const WORD_NAMESPACE: usize = 4;
pub const WORD_CHUNKS_MAX: usize = 5;
/// How much is recorded: 0 nothing, 1 what is live, 2 all.
pub const WORD_LEVEL: usize = 6;
/// 1: everything was recorded that ever happened.
pub const WORD_FROM_START: usize = 7;
/// Both clocks, read at the same moment.
pub const WORD_TIME_NS: usize = 8;
pub const WORD_EPOCH_US: usize = 9;
pub const WORD_ENTRIES_MAX: usize = 10;
/// When the process was last seen, in microseconds since 1970: as of the last second or so.
pub const WORD_SEEN_US: usize = 11;
pub const HEAD_WORDS: usize = 16;

pub const PAGE_BYTES: usize = 4096;
pub const OWNERS_AT: usize = PAGE_BYTES;
pub const OWNERS_MAX: usize = 1024;
pub const OWNER_WORDS: usize = 8;
pub const OWNER_BYTES: usize = OWNER_WORDS * 8;
pub const TABLE_AT: usize = OWNERS_AT + OWNERS_MAX * OWNER_BYTES;
pub const CHUNK_BYTES: usize = CHUNK_ROWS * 40;
const _: () =
    assert!(CHUNK_BYTES.is_multiple_of(PAGE_BYTES) && TABLE_AT.is_multiple_of(PAGE_BYTES));
/// 10 GiB.
pub const CHUNKS_MAX: usize = 1 << 17;

/// Words of an owner. What it is: 0 nothing, 1 a context, 2 a device's memory of the driver's own, 3 the
/// host's.
pub const OWNER_KIND: usize = 0;
pub const OWNER_DEVICE: usize = 1;
/// How many entries were ever pushed, and how many are kept.
pub const OWNER_PUSHED: usize = 2;
pub const OWNER_ENTRIES_MAX: usize = 3;
/// 1: its rows are consistent.
pub const OWNER_ON: usize = 4;

pub const OWNER_CONTEXT: u64 = 1;
pub const OWNER_FOREIGN: u64 = 2;
pub const OWNER_HOST: u64 = 3;

/// What chunks hold.
pub const ENTRIES: u8 = 1;
pub const BLOCKS: u8 = 2;
pub const SEGMENTS: u8 = 3;
pub const LOG: u8 = 4;

/// The word of a chunk: what it holds, of which owner, and which of its chunks of this kind it is.
pub fn chunk_word(kind: u8, owner: usize, number: usize) -> u64 {
    u64::from(kind) << 56 | (owner as u64 & 0xff_ffff) << 32 | number as u64 & 0xffff_ffff
}

pub fn chunk_of(word: u64) -> (u8, usize, usize) {
    ((word >> 56) as u8, (word >> 32) as usize & 0xff_ffff, word as u32 as usize)
}

/// Where the chunks begin.
pub fn chunks_at(chunks_max: usize) -> usize {
    TABLE_AT + (chunks_max * 8).next_multiple_of(PAGE_BYTES)
}

pub fn file_bytes(chunks_max: usize) -> usize {
    chunks_at(chunks_max) + chunks_max * CHUNK_BYTES
}

/// A block of a context, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct BlockRow {
    pub address: u64,
    pub bytes: u64,
    /// Kept here, because the three entries of its life must agree to the byte.
    pub requested_bytes: u64,
    pub stream: u64,
    pub stack: StackId,
    /// Stored last when the block is handed out, first when it is freed.
    pub state: u32,
}

pub const FREE: u32 = 0;
pub const LIVE: u32 = 1;
pub const PENDING: u32 = 2;

/// Memory that came from the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct SegmentRow {
    pub address: u64,
    pub bytes: u64,
    pub stream: u64,
    pub pool_id: u64,
    pub stack: StackId,
    /// Of `IS_THERE` and the like; 0: the row is free. Stored last when the segment comes.
    pub flags: u32,
}

pub const IS_THERE: u32 = 1;
pub const IS_SMALL: u32 = 2;
pub const IS_EXPANDABLE: u32 = 4;
/// One block of the program's covers it.
pub const IS_BLOCK: u32 = 8;

const _: () = assert!(size_of::<BlockRow>() == 40 && size_of::<SegmentRow>() == 40);
const _: () = assert!(size_of::<crate::entry::Entry>() == 40);

/// The file's name begins with this; then come the user, the process's namespace, its number there and its
/// start, with a `-` between them; and where that name is taken, a `.` and anything.
pub const NAME_BEGIN: &str = "cachealloc-history-";

/// Settings that are not listed as such in a snapshot begin with this.
pub const SETTING_OWN: &str = "=";
pub const SETTING_CONFIGURATION: &str = "=configuration";
pub const SETTING_SPLIT_MAX: &str = "=split_bytes_max";
pub const SETTING_COLLECTED_ABOVE: &str = "=garbage_collection_threshold";
pub const SETTING_EXPANDABLE: &str = "=expandable_segments";
/// With a comma between them.
pub const SETTING_ROUNDUP: &str = "=roundup_power2_divisions";
pub const SETTING_CAPTURE_REUSE: &str = "=graph_capture_record_stream_reuse";
/// The program's file.
pub const SETTING_PROGRAM: &str = "=program";
/// `EvalLoopCode` as text; the last one holds.
pub const SETTING_EVALUATION: &str = "=evaluation";
