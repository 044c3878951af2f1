//! `cuMemAlloc` and `cuMemFree` on their shortest paths: the thread's list has or takes the block.
//! The functions to which these leave the rest do not unwind, so that calls of them are jumps, and
//! no register has to be saved for them.

use cachealloc_core::Requester;

use crate::cache::alloc::CacheLookup;
use crate::cache::free::Next;
use crate::cache::{alloc, blocks, free};
use crate::contexts::lookup;
use crate::driver::sys::{CuCode, CuError, CuResult, code};
use crate::functions::Function;
use crate::hooks::{Token, guarded_by, out_of_memory};
use crate::pagemap::{Claimed, Extent, Slot};
use crate::process::bypass;
use crate::state::contexts::Context;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::state::thread_cache::Owned;
use crate::{gate, pagemap};

/// `cuMemAlloc(CUdeviceptr *pointer, size_t bytes)` on its shortest path: the thread's list has a
/// block. `any` handles every call.
#[inline(always)]
pub(crate) fn alloc_shortly(
    function: &'static Function,
    pointer: *mut u64,
    bytes: usize,
    any: impl Fn(*mut u64, usize) -> CuCode + Copy,
) -> CuCode {
    if pointer.is_null() || !gate::requests_are_plain() {
        return any(pointer, bytes);
    }
    thread::with_fixed(|thread| {
        let Some(token) = Token::take(thread) else { return any(pointer, bytes) };
        let Some(context) = lookup::seen_current(thread) else {
            drop(token);
            return any(pointer, bytes);
        };
        match alloc::try_thread_cache(thread, context, bytes as u64, Requester::Context) {
            CacheLookup::Block(address) => {
                // SAFETY: the program passed it for this result.
                unsafe { pointer.write(address) };
                drop(token);
                match blocks::may_be_peak(context) {
                    true => note_peak(thread, context),
                    false => code(Ok(())),
                }
            }
            CacheLookup::Nothing(list) => {
                alloc_past_list(function, token, context, pointer, bytes, list, any)
            }
            CacheLookup::Gone => alloc_after_end(token, context, pointer, bytes, any),
        }
    })
}

/// Ends an allocation that may be a new peak.
#[cold]
#[inline(never)]
extern "C" fn note_peak(thread: &Thread, context: &Context) -> CuCode {
    blocks::note_peak(thread, context);
    code(Ok(()))
}

/// Allocates after the thread's list had a block that was no longer cached.
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions)]
extern "C" fn alloc_after_end(
    token: Token,
    context: &Context,
    pointer: *mut u64,
    bytes: usize,
    any: impl Fn(*mut u64, usize) -> CuCode,
) -> CuCode {
    blocks::not_cached(context);
    drop(token);
    any(pointer, bytes)
}

/// Allocates after a miss in the thread cache, or lets `any` decide.
#[inline(never)]
#[allow(improper_ctypes_definitions)]
extern "C" fn alloc_past_list(
    function: &'static Function,
    token: Token,
    context: &'static Context,
    pointer: *mut u64,
    bytes: usize,
    list: Option<Owned>,
    any: impl Fn(*mut u64, usize) -> CuCode,
) -> CuCode {
    if bytes == 0 {
        drop((token, list));
        return any(pointer, bytes);
    }
    let thread = token.0;
    let then = |allocated: CuResult<u64>| {
        // Caching ended during the call: the error is the library's, not the driver's.
        if allocated.is_err() && !bypass::is_caching() {
            return None;
        }
        // SAFETY: as in `alloc_shortly`. The driver, too, writes a null pointer when it fails
        // (measured).
        unsafe { pointer.write(allocated.unwrap_or(0)) };
        Some(allocated.map(|_| ()))
    };
    let size = bytes as u64;
    let serve = || alloc::allocate_slow(thread, context, size, Requester::Context, 0, list, then);
    match guarded_by(token, function, serve, || None) {
        Some(Ok(())) => code(Ok(())),
        Some(Err(error)) => {
            let words = [pointer as usize, bytes];
            code(out_of_memory::answered(function, &words, error))
        }
        None => any(pointer, bytes),
    }
}

/// `cuMemFree(CUdeviceptr pointer)` on its shortest path: all work is over, and the thread's list
/// takes the block. `any` handles every call.
#[inline(always)]
pub(crate) fn free_shortly(
    function: &'static Function,
    address: u64,
    any: impl Fn(u64) -> CuCode,
) -> CuCode {
    if !gate::frees_are_plain() {
        return any(address);
    }
    thread::with_fixed(|thread| {
        if thread.inside.get() {
            return any(address);
        }
        match pagemap::is_near(thread, address) {
            true => free_near(function, thread, address, any),
            false => free_far(function, thread, address, any),
        }
    })
}

/// Frees a block far from those that the thread freed last.
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions)]
extern "C" fn free_far(
    function: &'static Function,
    thread: &Thread,
    address: u64,
    any: impl Fn(u64) -> CuCode,
) -> CuCode {
    match pagemap::go_near(thread, address) {
        true => free_near(function, thread, address, any),
        false => any(address),
    }
}

#[inline(always)]
fn free_near(
    function: &'static Function,
    thread: &Thread,
    address: u64,
    any: impl Fn(u64) -> CuCode,
) -> CuCode {
    let Some(claimed) = Claimed::near(thread, address) else { return any(address) };
    let Claimed { extent, slot, word } = claimed;
    match free::into_list(thread, claimed, address) {
        Next::Done => code(Ok(())),
        Next::Core => free_into_core(function, thread, extent, slot, word, address),
        Next::Route => free_claimed(function, thread, extent, slot, word, address),
    }
}

/// Frees a claimed block into the core. The claim is passed in parts, so that they stay in
/// registers.
#[inline(never)]
#[allow(improper_ctypes_definitions)]
extern "C" fn free_into_core(
    function: &'static Function,
    thread: &Thread,
    extent: &'static Extent,
    slot: &'static Slot,
    word: u64,
    address: u64,
) -> CuCode {
    let put = || {
        let block = Claimed { extent, slot, word }.block(address);
        blocks::free_past_list(thread, extent.context(), &block);
        code(Ok(()))
    };
    // The same error as for a block that is in no state to be freed.
    let otherwise = || code(Err(CuError::INVALID_VALUE));
    guarded_by(Token::of(thread), function, put, otherwise)
}

/// Frees a claimed block by the route that its state requires.
#[inline(never)]
#[allow(improper_ctypes_definitions)]
extern "C" fn free_claimed(
    function: &'static Function,
    thread: &Thread,
    extent: &'static Extent,
    slot: &'static Slot,
    word: u64,
    address: u64,
) -> CuCode {
    let free = || free::claimed_plainly(thread, Claimed { extent, slot, word }.block(address));
    let otherwise = || Err(CuError::INVALID_VALUE);
    let freed = guarded_by(Token::of(thread), function, free, otherwise);
    code(freed.or_else(|error| out_of_memory::answered(function, &[address as usize], error)))
}
