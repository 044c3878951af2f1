//! What a kernel is given: argument sizes by kernel, and the search for addresses of pinned memory
//! among the argument words (DESIGN 3.3). Only done while pinned memory is alive, and only until
//! the first find: from then on every kernel counts as visible.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use cachealloc_core::order::VisibleCause;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::api;
use crate::driver::sys::{CuResult, SUCCESS};
use crate::runtime::{agents, pinned};

/// A kernel with more arguments than this counts as unknown.
const ARGUMENTS_MAX: usize = 4096;
const WORD_BYTES: usize = size_of::<usize>();

/// `CU_LAUNCH_PARAM_*` of the `extra` array.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_BUFFER_BYTES: usize = 2;

type Sizes = Option<Box<[usize]>>;

/// Argument sizes by function or kernel handle; `None` where the driver does not tell them.
static SIZES: RwLock<Option<HashMap<usize, Sizes>>> = RwLock::new(None);

/// Looks through the arguments of one launch.
///
/// # Safety
///
/// `params` and `extra` are null or what the program hands to the launch of `kernel`.
pub unsafe fn scan(kernel: usize, params: *const *const c_void, extra: *const *const c_void) {
    if !rule_holds(Rule::ArgumentsAreScanned) {
        return;
    }
    let found = match (params.is_null(), extra.is_null()) {
        // SAFETY: the caller's promise.
        (false, _) => unsafe { scan_params(kernel, params) },
        // SAFETY: the caller's promise.
        (true, false) => unsafe { scan_extra(extra) },
        (true, true) => None,
    };
    if let Some(cause) = found {
        agents::visible(cause);
    }
}

/// A module was unloaded: its handles may be given out again.
pub fn forget_all() {
    *SIZES.write().unwrap_or_else(PoisonError::into_inner) = None;
}

unsafe fn scan_params(kernel: usize, params: *const *const c_void) -> Option<VisibleCause> {
    with_sizes(kernel, |sizes| {
        let Some(sizes) = sizes else { return Some(VisibleCause::UnknownArguments) };
        for (index, bytes) in sizes.iter().enumerate() {
            // SAFETY: the array has one pointer for each argument of the kernel, and each points
            // to as many bytes as the argument has.
            let hit = unsafe { bytes_name_pinned((*params.add(index)).cast(), *bytes) };
            if hit {
                return Some(VisibleCause::PinnedArgument);
            }
        }
        None
    })
}

/// `extra` is a list of name, value pairs up to a zero name.
unsafe fn scan_extra(extra: *const *const c_void) -> Option<VisibleCause> {
    let (mut buffer, mut bytes) = (core::ptr::null(), 0);
    for pair in 0..8 {
        // SAFETY: the list ends with a zero name; its values are pointers as named.
        unsafe {
            match *extra.add(2 * pair) as usize {
                EXTRA_END => break,
                EXTRA_BUFFER => buffer = *extra.add(2 * pair + 1),
                EXTRA_BUFFER_BYTES => bytes = *(*extra.add(2 * pair + 1)).cast::<usize>(),
                _ => return Some(VisibleCause::UnknownArguments),
            }
        }
    }
    // SAFETY: the program says that the buffer holds so many bytes.
    let hit = !buffer.is_null() && unsafe { bytes_name_pinned(buffer.cast(), bytes) };
    hit.then_some(VisibleCause::PinnedArgument)
}

/// Whether any aligned word of an argument is an address in pinned memory.
unsafe fn bytes_name_pinned(start: *const u8, bytes: usize) -> bool {
    (0..bytes / WORD_BYTES).any(|word| {
        // SAFETY: inside the argument; it need not be aligned in the program's memory.
        let value = unsafe { start.add(word * WORD_BYTES).cast::<usize>().read_unaligned() };
        pinned::contains(value)
    })
}

fn with_sizes<T>(kernel: usize, read: impl FnOnce(Option<&[usize]>) -> T) -> T {
    {
        let sizes = SIZES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sizes.as_ref().and_then(|sizes| sizes.get(&kernel)) {
            return read(known.as_deref());
        }
    }
    let asked =
        ask(kernel, api::func_get_param_info).or_else(|| ask(kernel, api::kernel_get_param_info));
    let mut sizes = SIZES.write().unwrap_or_else(PoisonError::into_inner);
    let known = sizes.get_or_insert_with(HashMap::new).entry(kernel).or_insert(asked);
    read(known.as_deref())
}

type Ask = fn(usize, usize, &mut usize, &mut usize) -> CuResult;

/// The sizes of all arguments. The driver answers an error behind the last one; that the first
/// question fails too may mean "no arguments" or "not that kind of handle".
fn ask(kernel: usize, info: Ask) -> Sizes {
    let mut sizes = Vec::new();
    for index in 0..ARGUMENTS_MAX {
        let (mut offset, mut bytes) = (0, 0);
        match info(kernel, index, &mut offset, &mut bytes) {
            SUCCESS => sizes.push(bytes),
            crate::driver::sys::INVALID_VALUE => return Some(sizes.into()),
            _ => return None,
        }
    }
    None
}
