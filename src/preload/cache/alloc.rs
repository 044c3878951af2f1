//! An allocation: from the thread cache, from the core, or, on a miss, by the core's steps.

use std::sync::MutexGuard;

use cachealloc_core::policy::{BLOCK_BYTES_MIN, unchecked_block_bytes, undivided_block_bytes};
use cachealloc_core::{Allocator, Request, Requester};
use cachealloc_history::StackId;

use crate::cache::blocks;
use crate::cache::blocks::Call;
use crate::cache::miss::miss_or_else;
use crate::config;
use crate::driver::sys::{CuResult, StreamHandle};
use crate::gate;
use crate::lock::lock;
use crate::record;
use crate::record::capture;
use crate::state::contexts::Context;
use crate::state::thread::Thread;
use crate::state::thread_cache::{Noted, Owned};

/// Returns the address of a block for the program, or the error of the driver.
#[inline(always)]
pub(crate) fn allocate(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    requester: Requester,
    stream: StreamHandle,
) -> CuResult<u64> {
    if !gate::allocates_simply() {
        return allocate_general(thread, context, bytes, requester, stream);
    }
    let list = match try_thread_cache(thread, context, bytes, requester) {
        CacheLookup::Block(address) => {
            blocks::note_peak(thread, context);
            return Ok(address);
        }
        CacheLookup::Nothing(list) => list,
        CacheLookup::Gone => {
            blocks::not_cached(context);
            None
        }
    };
    allocate_slow(thread, context, bytes, requester, stream, list, |allocated| allocated)
}

/// Result of looking in the thread's list for a request.
pub(crate) enum CacheLookup<'a> {
    /// A block, which the program owns now.
    Block(u64),
    /// Nothing. Has the list, unless that is busy.
    Nothing(Option<Owned<'a>>),
    /// A block that was no longer cached (`blocks::not_cached`).
    Gone,
}

/// Takes a block of the thread's list. Only where requests are only for memory
/// (`gate::allocates_simply`). Call `blocks::note_peak` afterwards.
#[inline(always)]
pub(crate) fn try_thread_cache<'a>(
    thread: &Thread,
    context: &'a Context,
    bytes: u64,
    requester: Requester,
) -> CacheLookup<'a> {
    let block_bytes = unchecked_block_bytes(bytes);
    let cached = match context.thread_cache.take(thread, block_bytes, bytes) {
        Ok(cached) => cached,
        Err(list) => return CacheLookup::Nothing(list),
    };
    // Less than a unit, so that nothing has to be read before it is noted.
    let slack_bytes = bytes.wrapping_neg() % BLOCK_BYTES_MIN;
    match blocks::hand_out_cached(cached, slack_bytes, requester) {
        true => CacheLookup::Block(cached.address),
        false => CacheLookup::Gone,
    }
}

/// Serves a request for which `try_thread_cache` found no block. `then` gets the result, in most
/// cases directly where it is found.
#[inline(always)]
pub(crate) fn allocate_slow<T>(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    requester: Requester,
    stream: StreamHandle,
    list: Option<Owned>,
    then: impl FnOnce(CuResult<u64>) -> T,
) -> T {
    let block_bytes = undivided_block_bytes(bytes);
    let noted = match block_bytes {
        Some(block_bytes) if context.thread_cache.is_known(thread) => {
            note_request(list, block_bytes, bytes)
        }
        Some(block_bytes) => {
            drop(list);
            settle(thread, context, block_bytes, bytes)
        }
        None => Noted::NotEmpty,
    };
    let list_is_empty = match noted {
        Noted::Block(cached) => {
            if blocks::hand_out_cached(cached, cached.bytes - bytes, requester) {
                blocks::note_peak(thread, context);
                return then(Ok(cached.address));
            }
            blocks::not_cached(context);
            false
        }
        Noted::Several => {
            context.thread_cache.keep_apart(thread);
            false
        }
        Noted::Empty => true,
        Noted::NotEmpty => false,
    };
    let mut allocator = lock(&context.allocator);
    if let (true, Some(block_bytes), Requester::Context) = (list_is_empty, block_bytes, requester)
        && let Some(plain) = allocator.hit_plain(bytes, block_bytes)
    {
        let (address, counted) = blocks::hand_out_plain(context, &mut allocator, plain, bytes);
        drop(allocator);
        blocks::note_peak_of(thread, context, counted);
        return then(Ok(address));
    }
    let call = Call { requester, stream, stack: StackId::NONE };
    then(from_core(thread, context, bytes, block_bytes, call, allocator))
}

#[inline(always)]
fn note_request(list: Option<Owned>, block_bytes: u64, bytes: u64) -> Noted {
    list.map_or(Noted::NotEmpty, |list| list.note_request_of_any(block_bytes, bytes))
}

/// Serves a thread that last used another context, or none.
#[cold]
fn settle(thread: &Thread, context: &Context, block_bytes: u64, bytes: u64) -> Noted {
    context.thread_cache.settle(thread);
    match context.thread_cache.take(thread, block_bytes, bytes) {
        Ok(cached) => Noted::Block(cached),
        Err(list) => note_request(list, block_bytes, bytes),
    }
}

/// Serves a request in any configuration.
#[cold]
fn allocate_general(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    requester: Requester,
    stream: StreamHandle,
) -> CuResult<u64> {
    let is_recorded = record::is_on();
    let stack = if is_recorded { capture::of_allocation() } else { StackId::NONE };
    let call = Call { requester, stream, stack };
    // Recording happens under the allocator's lock, which a thread cache would bypass.
    let mut recording = is_recorded.then(|| lock(&context.allocator));
    let wanted_bytes = bytes.saturating_add(config::zone_bytes());
    let block_bytes = config::get().policy.block_bytes(wanted_bytes);
    context.thread_cache.settle(thread);
    let taken = block_bytes.map(|found| context.thread_cache.take(thread, found, bytes));
    match taken {
        Some(Ok(cached)) => {
            let is_cached = match &mut recording {
                Some(allocator) => {
                    blocks::hand_out_cached_recorded(context, allocator, cached, bytes, call)
                }
                None => blocks::hand_out_cached(cached, cached.bytes - bytes, requester),
            };
            if is_cached {
                blocks::note_peak(thread, context);
                return Ok(cached.address);
            }
            blocks::not_cached(context);
        }
        Some(Err(Some(mut list))) => _ = list.note_request(block_bytes.unwrap_or_default()),
        Some(Err(None)) | None => {}
    }
    let allocator = recording.unwrap_or_else(|| lock(&context.allocator));
    from_core(thread, context, wanted_bytes, block_bytes, call, allocator)
}

/// Serves a request from the core. `bytes` includes the red zone, if there is one.
#[inline(never)]
fn from_core(
    thread: &Thread,
    context: &'static Context,
    bytes: u64,
    block_bytes: Option<u64>,
    call: Call,
    mut allocator: MutexGuard<Allocator>,
) -> CuResult<u64> {
    context
        .thread_cache
        .empty_own(thread, |cached| blocks::take_back(context, &mut allocator, cached));
    let found = match block_bytes {
        Some(block_bytes) => allocator.hit_new(bytes, block_bytes, call.requester),
        None => None,
    };
    match found {
        Some(allocation) => Ok(blocks::hand_out(context, &mut allocator, allocation, call)),
        None => {
            drop(allocator);
            miss_or_else(context, Request::new(bytes, call.requester), call, || None)
        }
    }
}
