//! Blocks whose handles went to other processes (`cuIpcGetMemHandle`) or to other hardware
//! (dma-bufs). The core has the rules: Note [Exported blocks]. This file marks the blocks before
//! the program has the handle, and really frees a segment once it holds nothing else.
//!
//! The real `cuMemFree` does that, because the program's free would have called it without the
//! library: it may wait, and the driver keeps the memory for the processes that have it mapped.

use cachealloc_core::Address;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::blocks;
use crate::cache::release::PendingRelease;
use crate::driver::sys::CuResult;
use crate::ipc::ipc_handle::Inside;
use crate::lock::lock;
use crate::pagemap;
use crate::pagemap::{Extent, LiveBlock, Place};
use crate::record::capture;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::state::under_way::Waiter;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::{ipc, log};

/// Notes that another process may map this block from now on. Must be called before the program has
/// the handle. Returns `false` if the block was freed meanwhile.
pub(crate) fn mark(block: &LiveBlock) -> bool {
    if ipc::note_exported() {
        log::info(format_args!("memory is exported: large blocks are no longer split"));
        // A context seen later checks `any_exported` when it creates its allocator.
        contexts::all().for_each(|context| lock(&context.allocator).keep_large_whole());
    }
    // From here on no block of the segment enters a thread cache: the segment has to be released
    // when the last block is freed.
    block.extent.note_exported();
    let context = block.context();
    let mut allocator = lock(&context.allocator);
    blocks::take_back_all(context, &mut allocator);
    let same =
        matches!(pagemap::place(block.address), Place::Block(now) if now.block == block.block);
    if same {
        allocator.export(block.block);
        counters::count(Count::BlocksExported);
    }
    same
}

/// Marks the blocks that a dma-buf of this range shows to other hardware.
pub(crate) fn mark_range(extent: &'static Extent, address: u64, bytes: usize) {
    touched(extent, address, bytes).for_each(|block| _ = mark(&block)); // `false` if it was freed meanwhile
}

/// Returns the program's blocks in a range that begins in this segment, in order.
pub(crate) fn touched(
    extent: &'static Extent,
    address: u64,
    bytes: usize,
) -> impl Iterator<Item = LiveBlock> {
    let end = address.saturating_add(bytes as u64);
    let mut at = address;
    core::iter::from_fn(move || {
        while at < end {
            let view = lock(&extent.context().allocator).find(Address(at))?;
            at = view.address.0 + view.bytes;
            if let Place::Block(block) = pagemap::place(view.address.0) {
                return Some(block);
            }
        }
        None
    })
}

/// Returns where an importer finds the block, or `None` if it is the whole segment, which the
/// driver's own handle describes.
pub(crate) fn inside(block: &LiveBlock) -> Option<Inside> {
    let LiveBlock { address, requested_bytes, extent, .. } = *block;
    let offset = address - extent.base();
    let whole = offset == 0 && requested_bytes == extent.bytes();
    (!whole).then_some(Inside { offset, requested_bytes })
}

/// Releases segments that contain only retired and free blocks, after a successful `cuMemFree`. On
/// the plain driver that free waits, unless the memory is of the default pool: such a free releases
/// nothing.
#[inline]
pub(crate) fn after_free(
    context: &'static Context,
    of_default_pool: bool,
    code: CuResult,
) -> CuResult {
    if !ipc::any_exported() || code.is_err() {
        return code;
    }
    let waits = !of_default_pool || !rule_holds(Rule::OnlyWaitingFreesRelease);
    if waits { give_back_retired(context) } else { code }
}

#[cold]
fn give_back_retired(context: &'static Context) -> CuResult {
    let caller = capture::of_free();
    let mut allocator = lock(&context.allocator);
    let retired = allocator.take_retired();
    let releasing = PendingRelease::new(context, &mut allocator, retired, caller);
    drop(allocator);
    // The program's block is freed whatever happens to the segments. The program may not free it
    // again.
    releasing.release(context, Waiter::StandsStill).or_else(|error| {
        match error.is_returned_by_free() {
            true => Err(error),
            false => Ok(()),
        }
    })
}
