//! Memory that the nodes of a capture reference: their work may read and write it when the graph is
//! launched.
//!
//! References are recorded when work is submitted into a capture. Every address among the bytes of
//! a kernel's arguments, at any alignment, and every operand of a copy or a fill references the
//! library's block around it. The end of a block counts too, unless another block or memory of the
//! driver begins there, since an adjacent block that is not meant would stay reserved. This also
//! finds a tensor map (`CUtensorMap`), which begins with its address (measured). For an unknown
//! function, or a kernel with unknown arguments, everything counts that the program holds of the
//! capture's memory at that moment. No later node can reference memory that was freed by then.

use core::ffi::c_void;
use std::collections::BTreeMap;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_core::{Address, BlockState};

use crate::driver::api;
use crate::driver::sys::POINTER_IS_MAPPED;
use crate::functions::{Function, Launches, NodeReferences};
use crate::lock::lock;
use crate::ordering::kernels;
use crate::pagemap;
use crate::pagemap::Place;

#[derive(Default)]
pub(crate) struct ReferencedRanges {
    /// Disjoint ranges, each end by its begin.
    ranges: BTreeMap<u64, u64>,
    /// Blocks referenced since the last `take_blocks`.
    blocks: Vec<u64>,
}

impl ReferencedRanges {
    pub(crate) fn add(&mut self, begin: u64, end: u64) {
        let (mut begin, mut end) = (begin, end);
        while let Some((from, to)) = self.last_before(end).filter(|(_, to)| *to >= begin) {
            self.ranges.remove(&from);
            (begin, end) = (begin.min(from), end.max(to));
        }
        self.ranges.insert(begin, end);
    }

    /// Returns whether any of these addresses is referenced.
    pub(crate) fn overlap(&self, begin: u64, end: u64) -> bool {
        self.last_end(begin, end).is_some()
    }

    /// Returns the end of the last range that contains any of these addresses.
    pub(crate) fn last_end(&self, begin: u64, end: u64) -> Option<u64> {
        let (_, to) = self.ranges.range(..end).next_back()?;
        (*to > begin).then_some(*to)
    }

    /// Returns the last range that begins at this address or before it.
    fn last_before(&self, address: u64) -> Option<(u64, u64)> {
        self.ranges.range(..=address).next_back().map(|(from, to)| (*from, *to))
    }

    /// Adds the block that the program holds around this address, or else the one that ends there.
    fn add_address(&mut self, address: u64) {
        let ends = || block_around(address.checked_sub(1)?);
        let mut blocks = [block_around(address), ends()];
        let begins = || blocks[0].is_some() || is_the_driver_s(address);
        if blocks[1].is_some() && rule_holds(Rule::BeginIsNoEnd) && begins() {
            blocks[1] = None;
        }
        for (begin, end) in blocks.into_iter().flatten() {
            self.blocks.push(begin);
            self.add(begin, end);
        }
    }

    /// Returns the addresses of the blocks that were referenced since the last call.
    pub(crate) fn take_blocks(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.blocks)
    }

    /// Adds what the nodes of this submission reference. Returns `false` if that is unknown.
    ///
    /// # Safety
    ///
    /// `words` must be the program's arguments of this function.
    pub(crate) unsafe fn add_submission(&mut self, function: &Function, words: &[usize]) -> bool {
        if let Some(Launches::Kernel { handle, params, extra }) = function.launches {
            let [handle, params] = [handle, params].map(|at| words[at as usize]);
            let extra = extra.map_or(0, |at| words[at as usize]);
            // SAFETY: the arguments of a launch, by the driver's header.
            return unsafe { self.add_arguments(handle, params, extra) };
        }
        match function.node {
            NodeReferences::Nothing => true,
            NodeReferences::Addresses => {
                // Sizes and values are treated as addresses too, which is harmless.
                words.iter().for_each(|word| self.add_address(*word as u64));
                true
            }
            NodeReferences::Unknown => false,
        }
    }

    unsafe fn add_arguments(&mut self, kernel: usize, params: usize, extra: usize) -> bool {
        let visit = |bytes: &[u8]| {
            let words = bytes.windows(size_of::<u64>());
            words.for_each(|word| self.add_address(u64::from_ne_bytes(word.try_into().unwrap())));
        };
        // SAFETY: the caller guarantees it.
        unsafe { arguments(kernel, params as *const _, extra as *const _, visit) }
    }
}

fn block_around(address: u64) -> Option<(u64, u64)> {
    if let Place::Block(block) = pagemap::place(address) {
        return Some((address, address + block.bytes));
    }
    let context = pagemap::extent_of(address)?.context();
    let view = lock(&context.allocator).find(Address(address))?;
    let allocated = view.state == BlockState::Allocated;
    allocated.then_some((view.address.0, view.address.0 + view.bytes))
}

/// Returns whether the program has memory here that is not the library's.
fn is_the_driver_s(address: u64) -> bool {
    pagemap::extent_of(address).is_none()
        && api::pointer_get_attribute(POINTER_IS_MAPPED, address)
            .is_ok_and(|mapped| mapped & 0xFF != 0)
}

/// `CU_LAUNCH_PARAM_*` of the `extra` array.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_BUFFER_BYTES: usize = 2;
const EXTRA_PAIRS_MAX: usize = 8;

/// Visits the bytes of each argument of a launch. Returns `false` if they are unknown.
///
/// # Safety
///
/// `params` and `extra` must be null or what the program passes to the launch of `kernel`.
unsafe fn arguments(
    kernel: usize,
    params: *const *const u8,
    extra: *const *const c_void,
    mut visit: impl FnMut(&[u8]),
) -> bool {
    if !params.is_null() {
        let Some(sizes) = kernels::argument_sizes(kernel) else { return false };
        for (index, bytes) in sizes.iter().enumerate() {
            // SAFETY: the array has one pointer for each argument of the kernel, and each points to
            // as many bytes as the argument has.
            visit(unsafe { core::slice::from_raw_parts(*params.add(index), *bytes) });
        }
        return true;
    }
    if extra.is_null() {
        return true;
    }
    let (mut buffer, mut bytes) = (core::ptr::null::<u8>(), 0);
    for pair in 0..EXTRA_PAIRS_MAX {
        // SAFETY: a list of name, value pairs up to a zero name; its values are pointers as named.
        unsafe {
            match *extra.add(2 * pair) as usize {
                EXTRA_END => break,
                EXTRA_BUFFER => buffer = (*extra.add(2 * pair + 1)).cast(),
                EXTRA_BUFFER_BYTES => bytes = *(*extra.add(2 * pair + 1)).cast::<usize>(),
                _ => return false,
            }
        }
    }
    if !buffer.is_null() {
        // SAFETY: the program guarantees that the buffer holds this many bytes.
        visit(unsafe { core::slice::from_raw_parts(buffer, bytes) });
    }
    true
}
