//! Layout of the file:
//!
//! ```text
//!   0             the head: words, by the numbers below
//!   OWNERS_AT     owners, OWNER_BYTES each
//!   TABLE_AT      one word for each chunk: what it holds and whose it is; 0: nothing
//!   chunks_at()   chunks, CHUNK_BYTES each
//! ```
//!
//! All numbers are in the machine's byte order. The file is sparse: it has its maximum size from
//! the start.

use crate::entry::StackId;
use crate::rows::CHUNK_ROWS;

/// The first bytes of every such file.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"cachHIST");
/// Version of the layout. It changes with the contents of this file.
pub const LAYOUT: u64 = 2;

/// Indices of the words of the head.
pub const WORD_MAGIC: usize = 0;
pub const WORD_LAYOUT: usize = 1;
pub const WORD_PROCESS: usize = 2;
pub const WORD_START: usize = 3;
pub const WORD_NAMESPACE: usize = 4;
pub const WORD_CHUNKS_MAX: usize = 5;
/// How much is recorded: 0 nothing, 1 live memory only, 2 everything.
pub const WORD_LEVEL: usize = 6;
/// 1 if everything that ever happened was recorded.
pub const WORD_FROM_START: usize = 7;
/// Both clocks, read at the same moment.
pub const WORD_TIME_NS: usize = 8;
pub const WORD_EPOCH_US: usize = 9;
pub const WORD_ENTRIES_MAX: usize = 10;
/// When the process was last seen alive, in microseconds since 1970, accurate to about a second.
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

/// Indices of the words of an owner. The kind is 0 for none, 1 for a context, 2 for memory that the
/// driver itself holds on a device, 3 for the host.
pub const OWNER_KIND: usize = 0;
pub const OWNER_DEVICE: usize = 1;
/// Number of entries ever pushed, and number kept.
pub const OWNER_PUSHED: usize = 2;
pub const OWNER_ENTRIES_MAX: usize = 3;
/// 1 if its rows are consistent.
pub const OWNER_ON: usize = 4;

pub const OWNER_CONTEXT: u64 = 1;
pub const OWNER_FOREIGN: u64 = 2;
pub const OWNER_HOST: u64 = 3;

/// Kinds of contents of a chunk.
pub const ENTRIES: u8 = 1;
pub const BLOCKS: u8 = 2;
pub const SEGMENTS: u8 = 3;
pub const LOG: u8 = 4;

/// Returns the table word of a chunk: its kind of contents, its owner, and its index among the
/// owner's chunks of this kind.
pub fn chunk_word(kind: u8, owner: usize, number: usize) -> u64 {
    u64::from(kind) << 56 | (owner as u64 & 0xff_ffff) << 32 | number as u64 & 0xffff_ffff
}

pub fn chunk_of(word: u64) -> (u8, usize, usize) {
    ((word >> 56) as u8, (word >> 32) as usize & 0xff_ffff, word as u32 as usize)
}

/// Returns the offset of the chunks.
pub fn chunks_at(chunks_max: usize) -> usize {
    TABLE_AT + (chunks_max * 8).next_multiple_of(PAGE_BYTES)
}

pub fn file_bytes(chunks_max: usize) -> usize {
    chunks_at(chunks_max) + chunks_max * CHUNK_BYTES
}

/// A block of a context, at the index of its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct BlockRow {
    pub address: u64,
    pub bytes: u64,
    /// Kept here because the three entries of a block's life must agree to the byte.
    pub requested_bytes: u64,
    pub stream: u64,
    pub stack: StackId,
    /// Stored last when the block is handed out, first when it is freed.
    pub state: u32,
}

pub const FREE: u32 = 0;
pub const LIVE: u32 = 1;
pub const PENDING: u32 = 2;

/// Memory obtained from the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct SegmentRow {
    pub address: u64,
    pub bytes: u64,
    pub stream: u64,
    pub pool_id: u64,
    pub stack: StackId,
    /// Bits such as `IS_THERE`; 0 if the row is free. Stored last when the segment is added.
    pub flags: u32,
}

pub const IS_THERE: u32 = 1;
pub const IS_SMALL: u32 = 2;
pub const IS_EXPANDABLE: u32 = 4;
/// One block of the program covers the whole segment.
pub const IS_BLOCK: u32 = 8;

const _: () = assert!(size_of::<BlockRow>() == 40 && size_of::<SegmentRow>() == 40);
const _: () = assert!(size_of::<crate::entry::Entry>() == 40);

/// Prefix of the file's name. After it come the user, the process's namespace, its number there and
/// its start time, separated by `-`. If that name is taken, a `.` and any text follow.
pub const NAME_BEGIN: &str = "cachealloc-history-";

/// Prefix of the settings that a snapshot does not list as such.
pub const SETTING_OWN: &str = "=";
pub const SETTING_CONFIGURATION: &str = "=configuration";
pub const SETTING_SPLIT_MAX: &str = "=split_bytes_max";
pub const SETTING_COLLECTED_ABOVE: &str = "=garbage_collection_threshold";
pub const SETTING_EXPANDABLE: &str = "=expandable_segments";
/// The values are separated by commas.
pub const SETTING_ROUNDUP: &str = "=roundup_power2_divisions";
pub const SETTING_CAPTURE_REUSE: &str = "=graph_capture_record_stream_reuse";
/// Path of the program's file.
pub const SETTING_PROGRAM: &str = "=program";
/// `EvalLoopCode` as text; the last one counts.
pub const SETTING_EVALUATION: &str = "=evaluation";
