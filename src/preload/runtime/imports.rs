//! Blocks of other processes that lie inside a segment mapped here. To the driver the mapping is
//! one piece; to the program each block is an allocation of its own: with its own address, size and
//! number, and closed by its own address.
//!
//! The driver answers every open of one segment with the same address and counts, so each open of
//! a block is one real open, and each close one real close.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::runtime::ipc_handle::Inside;
use crate::runtime::{extents, lock};

#[derive(Clone, Copy, Debug)]
pub struct Import {
    pub address: u64,
    pub requested_bytes: u64,
    pub buffer_id: u64,
    /// What the driver answered, and wants back.
    base: u64,
    context_id: u64,
    opened_count: u64,
}

/// By address.
static IMPORTS: Mutex<BTreeMap<u64, Import>> = Mutex::new(BTreeMap::new());
/// How many, for a look without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The driver has opened a handle of `mark`'s and answered `base`. Answers the block's address.
pub fn opened(base: u64, inside: Inside, context_id: u64) -> u64 {
    let mut imports = lock(&IMPORTS);
    let address = base + inside.offset;
    let import = imports.entry(address).or_insert_with(|| Import {
        address,
        requested_bytes: inside.requested_bytes,
        buffer_id: extents::fresh_buffer_id(),
        base,
        context_id,
        opened_count: 0,
    });
    import.opened_count += 1;
    COUNT.store(imports.len(), Ordering::Release);
    address
}

/// The program closes the block at this address. Call before the driver unmaps it: from then on
/// the address may be another mapping's. None: none of ours begins there.
pub fn closes(address: u64) -> Option<Import> {
    if none() {
        return None;
    }
    let mut imports = lock(&IMPORTS);
    let import = imports.get_mut(&address)?;
    import.opened_count -= 1;
    let closed = *import;
    if closed.opened_count == 0 {
        imports.remove(&address);
        COUNT.store(imports.len(), Ordering::Release);
    }
    Some(closed)
}

/// The driver refused the close: the block is still mapped.
pub fn close_failed(import: Import) {
    let mut imports = lock(&IMPORTS);
    let kept = imports.entry(import.address).or_insert(Import { opened_count: 0, ..import });
    kept.opened_count += 1;
    COUNT.store(imports.len(), Ordering::Release);
}

/// The block that the address lies in.
#[inline]
pub fn find(address: u64) -> Option<Import> {
    if none() { None } else { find_among(address) }
}

/// The context is gone, and with it all that it had mapped.
pub fn context_ended(context_id: u64) {
    if none() {
        return;
    }
    let mut imports = lock(&IMPORTS);
    imports.retain(|_, import| import.context_id != context_id);
    COUNT.store(imports.len(), Ordering::Release);
}

impl Import {
    pub fn base(&self) -> u64 {
        self.base
    }
}

fn none() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

#[cold]
fn find_among(address: u64) -> Option<Import> {
    let imports = lock(&IMPORTS);
    let (_, import) = imports.range(..=address).next_back()?;
    (address < import.address + import.requested_bytes).then_some(*import)
}
