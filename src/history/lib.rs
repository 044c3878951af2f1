//! The history of GPU memory as data: the history of one process, and its snapshot in PyTorch's
//! format.
//!
//! Terms: an *entry* is one event in the history of device memory. A *ring* keeps the latest
//! entries of a device. A *stack* is the call stack of an entry, as words that only the caller
//! understands, interned to a [`StackId`]. A *snapshot* is one consistent cut of all segments,
//! blocks and entries; it is written ([`write_snapshot`]) with the text of its stacks, which the
//! caller provides by [`Describe`]. A snapshot restored from a killed process is checked before it
//! is written ([`Snapshot::check`]).
//!
//! This crate reads no clock and no environment. Callers pass in times, process ids, host names and
//! environment variables; it touches only the file that it is asked to write.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

// Recording, while the program runs.
mod entry;
mod ring;
mod rows;
mod stacks;

// History that survives a kill.
pub mod persistent;

// The text of a stack.
pub mod category;
mod frames;
pub mod merge;

// The snapshot, and whether it is sound.
mod check;
mod merge_rings;
mod replay;
mod snapshot;

// The snapshot as a file that PyTorch's tools read.
pub mod file;
pub mod name;
mod oom;
mod pickle;
mod program;
mod torch;

// Output for people.
mod frame_kind;
mod hash;
mod short;
mod sites;

pub use check::Problem;
pub use entry::{Action, Entry, NO_RANGE, StackId};
pub use frame_kind::{FrameKind, frame_kind, is_interpreter, least_of_callers, site_index};
pub use frames::{Describe, Frame, NAME_BYTES_MAX, is_source, place, without_start};
pub use merge_rings::{MergedEntries, RingMerge};
pub use oom::data::{OomCache, OomLimit, OomPart, OomReport, OomRequest};
pub use oom::kind::{OomKind, OomPlace};
pub use oom::report::{SITES_DESCRIBED_MAX, oom_again, oom_report, oom_title};
pub use oom::why::{OomReason, reasons};
pub use program::program;
pub use ring::Ring;
pub use ring::copy::{RingCopy, RingEntries};
pub use ring::packed::PackedEntries;
pub use rows::copy::RowsCopy;
pub use rows::{CHUNK_ROWS, ChunkAllocator, Rows};
pub use short::{short_name, short_path};
pub use sites::{Site, live_sites, sites};
pub use snapshot::{
    Block, BlockState, Clock, Device, EntryList, HOST_DEVICE, PoolKind, Segment, Settings,
    Snapshot, tiled,
};
pub use stacks::{PieceAllocator, Stacks};
pub use torch::write_snapshot;
