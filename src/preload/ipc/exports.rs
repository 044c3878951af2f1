//! Blocks whose handles went to other processes (`cuIpcGetMemHandle`). The rules are the core's:
//! Note [Exported blocks]. Here is what the process does for them: the mark before the handle
//! exists, and the real free when a segment is left with nothing else.
//!
//! The real `cuMemFree`, because the program's own free would have been one: it waits, which
//! `cuMemFree` may, and the driver keeps the memory for those who have it mapped.

use crate::cache::blocks;
use crate::contexts::{self, Context};
use crate::driver::sys::{self, CuResult, SUCCESS};
use crate::ipc::ipc_handle::Inside;
use crate::lock::lock;
use crate::pagemap::{self, LiveBlock, Place};
use crate::statistics::counters::{self, Count};
use crate::trim::release::Leaving;
use crate::{ipc, log};

/// Another process may map this block from now on; call before the handle exists. False: the block
/// was freed meanwhile.
pub fn mark(block: &LiveBlock) -> bool {
    if ipc::note_exported() {
        log::info(format_args!("memory is exported: large blocks are no longer split"));
        // A context that comes later asks `any` when it makes its allocator.
        contexts::all().for_each(|context| lock(&context.allocator).keep_large_whole());
    }
    // No block of the segment is kept back in a list from here on: the segment is to leave when the
    // last one is freed.
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

/// Where an importer finds the block; None where it is the whole segment, and the driver's own handle says
/// all of it.
pub fn inside(block: &LiveBlock) -> Option<Inside> {
    let LiveBlock { address, requested_bytes, extent, .. } = *block;
    let offset = address - extent.base();
    let whole = offset == 0 && requested_bytes == extent.bytes();
    (!whole).then_some(Inside { offset, requested_bytes })
}

/// After a `cuMemFree` that succeeded: segments that have nothing left but retired and free blocks
/// go back, and the free has waited for nothing less than this.
#[inline]
pub fn after_free(context: &'static Context, code: CuResult) -> CuResult {
    if !ipc::any_exported() || code != SUCCESS { code } else { give_back_retired(context) }
}

#[cold]
fn give_back_retired(context: &'static Context) -> CuResult {
    let mut allocator = lock(&context.allocator);
    let retired = allocator.take_retired();
    let leaving = Leaving::new(context, &mut allocator, retired);
    drop(allocator);
    // The program's block is freed, whatever becomes of the segments: it may not free it again.
    let code = leaving.release(context);
    if sys::shows_in_free(code) { code } else { SUCCESS }
}
