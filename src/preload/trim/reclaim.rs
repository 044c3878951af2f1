//! Memory for the user's peer processes that run out of it (`peer_reclaim` makes the requests in
//! those processes). The writer's thread reports how much this process could release and accepts a
//! grant; the scavenger's thread releases it.

use std::sync::Mutex;

use cachealloc_statistics::control::GpuId;
use cachealloc_statistics::page::Offer;
use cachealloc_text::Bytes;

use crate::cache::blocks;
use crate::lock::lock;
use crate::log;
use crate::process::bounds;
use crate::process::lock_timeout::LockWait;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::live;
use crate::trim::{idle, scavenger};

/// Grants that were accepted and not released yet.
static WANTED: Mutex<Vec<ReclaimGrant>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
struct ReclaimGrant {
    gpu: GpuId,
    bytes: u64,
}

/// Returns how much memory of a GPU this process could release. Makes no driver call.
pub(crate) fn offer(gpu: GpuId) -> Offer {
    let (mut free_bytes, mut idle_bytes) = (0, 0);
    for context in on(gpu).filter(|_| scavenger::may_give()) {
        // While a context ends, blocks in its lists may be another context's. The device will have
        // its memory in a moment.
        let Some(_open) = context.keep_open() else { continue };
        let Some(mut allocator) = LockWait::Timeout.lock(&context.allocator) else { continue };
        // The core counts blocks in lists as in use, and with them the segment around.
        blocks::take_back_all(context, &mut allocator);
        free_bytes += allocator.free_bytes();
        idle_bytes += allocator.unused_bytes();
    }
    let mebibytes = |bytes: u64| (bytes >> 20) as u32;
    Offer { free_mebibytes: mebibytes(free_bytes), idle_mebibytes: mebibytes(idle_bytes) }
}

/// Makes the scavenger release this much memory of a GPU. Never waits.
pub(crate) fn enqueue(gpu: GpuId, mebibytes: u32) -> Result<(), i32> {
    if !scavenger::may_give() {
        return Err(libc::EPERM);
    }
    lock(&WANTED).push(ReclaimGrant { gpu, bytes: u64::from(mebibytes) << 20 });
    scavenger::go()
}

pub(super) fn are_wanted() -> bool {
    !lock(&WANTED).is_empty()
}

/// Releases the oldest grant. Only the scavenger's thread calls this.
pub(super) fn release_next() {
    let next = {
        let mut wanted = lock(&WANTED);
        (!wanted.is_empty()).then(|| wanted.remove(0))
    };
    let Some(grant) = next else { return };
    let mut left_bytes = grant.bytes;
    bounds::GIFT.until(|| {
        for context in on(grant.gpu) {
            left_bytes -= idle::give(context, left_bytes).min(left_bytes);
        }
        left_bytes == 0 || scavenger::is_stopped()
    });
    counters::count(Count::Gifts);
    let given_bytes = grant.bytes - left_bytes;
    log::info(format_args!(
        "released {} to a peer process that ran out of memory",
        Bytes(given_bytes)
    ));
    live::gave();
}

fn on(gpu: GpuId) -> impl Iterator<Item = &'static Context> {
    contexts::all().filter(move |context| context.hardware.id == Some(gpu))
}
