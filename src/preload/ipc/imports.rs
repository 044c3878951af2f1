//! Blocks of other processes inside a segment mapped here. To the driver the mapping is one
//! allocation. To the program each block is an allocation, with a separate address, size and id,
//! and it closes a block by that address.
//!
//! The driver returns the same address for every open of one segment and counts opens. So each open
//! of a block is one real open, and each close one real close. A program that closes one block too
//! often must not close another block's mapping, so opens through the driver's own handles are
//! counted too.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::ipc::ipc_handle::Inside;
use crate::lock::lock;
use crate::pagemap;
use crate::state::contexts;
use crate::state::contexts::Context;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Import {
    pub address: u64,
    pub requested_bytes: u64,
    pub buffer_id: u64,
    /// Address that the driver returned and expects at the close.
    base: u64,
    context_id: u64,
    opened_count: u64,
}

/// A mapping opened through the driver's own handle, which is one allocation.
#[derive(Clone, Copy, Debug)]
struct WholeImport {
    context_id: u64,
    opened_count: u64,
}

#[derive(Default)]
struct Imports {
    /// Imports by the block's address.
    inside: BTreeMap<u64, Import>,
    /// Imports by the mapping's address.
    whole: BTreeMap<u64, WholeImport>,
}

static IMPORTS: Mutex<Imports> =
    Mutex::new(Imports { inside: BTreeMap::new(), whole: BTreeMap::new() });
/// Size of `inside`, readable without the lock.
static INSIDE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// How to close a mapping. `address` is what the driver has to close.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CloseAction {
    Inside(Import),
    Whole {
        address: u64,
        context_id: u64,
    },
    /// Nothing is open at this address, although the driver knows a mapping: that of the blocks
    /// inside.
    Refused,
    /// The mapping was opened before the library was active, or never. The driver decides.
    Unknown,
}

/// Enters a handle made by `mark` that the driver has opened, returning `base`. Returns the block's
/// address.
pub(crate) fn opened(base: u64, inside: Inside, context_id: u64) -> u64 {
    let mut imports = lock(&IMPORTS);
    let address = base + inside.offset;
    // The driver reuses the address: what was there ended with its context, whose end is not
    // recorded yet.
    imports.inside.retain(|at, import| *at != address || !is_over(import.context_id, context_id));
    let import = imports.inside.entry(address).or_insert_with(|| Import {
        address,
        requested_bytes: inside.requested_bytes,
        buffer_id: pagemap::fresh_buffer_id(),
        base,
        context_id,
        opened_count: 0,
    });
    import.opened_count += 1;
    imports.note_count();
    address
}

/// Enters a handle of the driver that it has opened, returning this address.
pub(crate) fn opened_whole(address: u64, context_id: u64) {
    let mut imports = lock(&IMPORTS);
    imports.whole.retain(|at, whole| *at != address || !is_over(whole.context_id, context_id));
    let whole = imports.whole.entry(address).or_insert(WholeImport { context_id, opened_count: 0 });
    whole.opened_count += 1;
}

/// Removes one open of the mapping at this address. Must be called before the driver unmaps it:
/// afterwards the address may belong to another mapping.
pub(crate) fn closes(address: u64) -> CloseAction {
    let mut imports = lock(&IMPORTS);
    if let Some(import) = imports.inside.get_mut(&address) {
        import.opened_count -= 1;
        let closed = *import;
        if closed.opened_count == 0 {
            imports.inside.remove(&address);
            imports.note_count();
        }
        return CloseAction::Inside(closed);
    }
    if let Some(whole) = imports.whole.get_mut(&address) {
        whole.opened_count -= 1;
        let WholeImport { context_id, opened_count } = *whole;
        if opened_count == 0 {
            imports.whole.remove(&address);
        }
        return CloseAction::Whole { address, context_id };
    }
    match imports.inside.values().any(|import| import.base == address) {
        true => CloseAction::Refused,
        false => CloseAction::Unknown,
    }
}

/// Restores an open after the driver has refused the close.
pub(crate) fn close_failed(closing: CloseAction) {
    match closing {
        CloseAction::Inside(import) => {
            let mut imports = lock(&IMPORTS);
            let unopened = Import { opened_count: 0, ..import };
            imports.inside.entry(import.address).or_insert(unopened).opened_count += 1;
            imports.note_count();
        }
        CloseAction::Whole { address, context_id } => opened_whole(address, context_id),
        CloseAction::Refused | CloseAction::Unknown => {}
    }
}

/// Returns the block that contains the address.
#[inline]
pub(crate) fn find(address: u64) -> Option<Import> {
    if INSIDE_COUNT.load(Ordering::Acquire) == 0 { None } else { find_among(address) }
}

/// Removes all mappings of a context that has ended.
pub(crate) fn context_ended(context_id: u64) {
    let mut imports = lock(&IMPORTS);
    imports.inside.retain(|_, import| import.context_id != context_id);
    imports.whole.retain(|_, whole| whole.context_id != context_id);
    imports.note_count();
}

/// Whether a context has ended. The one in which the driver has just opened a handle has not,
/// although another thread may be dropping a reference to it.
fn is_over(context_id: u64, here: u64) -> bool {
    let is_here = context_id == here && rule_holds(Rule::OpensOutliveReference);
    !is_here && contexts::find(context_id).is_none_or(Context::is_ending)
}

impl Import {
    pub(crate) fn base(&self) -> u64 {
        self.base
    }
}

impl Imports {
    fn note_count(&self) {
        INSIDE_COUNT.store(self.inside.len(), Ordering::Release);
    }
}

#[cold]
fn find_among(address: u64) -> Option<Import> {
    let imports = lock(&IMPORTS);
    let (_, import) = imports.inside.range(..=address).next_back()?;
    (address < import.address + import.requested_bytes).then_some(*import)
}
