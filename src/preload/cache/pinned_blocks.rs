//! Tables of the pinned memory that the program holds, and of what it has freed, for
//! `pinned_memory.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::lock::lock;
use crate::pagemap;
use crate::process::bounds;
use crate::process::lock_timeout::LockWait;

/// Most pieces kept. Searching this many takes less time than the free of one saves.
const KEPT_MAX: usize = 256;

static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks {
    lent: BTreeMap::new(),
    kept: VecDeque::new(),
    kept_bytes: 0,
    leaving: Vec::new(),
});

/// Number of pieces that are kept or leave, readable without the lock.
static KEPT_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Whether any piece was reused.
static ANY_AGAIN: AtomicBool = AtomicBool::new(false);

struct Blocks {
    /// Memory that the program holds, by address.
    lent: BTreeMap<usize, Lent>,
    /// Memory that it has freed, oldest first.
    kept: VecDeque<(usize, Shape)>,
    kept_bytes: u64,
    /// Memory that was kept and that the driver is about to free.
    leaving: Vec<(usize, Shape)>,
}

/// Properties that a request must share with the memory that serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub context_id: u64,
    /// Id of the driver's function.
    pub function: usize,
    pub flags: u32,
    pub bytes: usize,
}

/// Memory that the program holds.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    pub shape: Shape,
    /// Buffer id of reused memory: the program regards it as a new allocation, the driver does not.
    buffer_id: Option<u64>,
}

/// Owner of an address.
pub(crate) enum Owner {
    /// The program; the allocation starts here.
    Program(Lent),
    /// The library: the program has freed it.
    Kept,
    Unknown,
}

/// Takes a kept piece for the program, which owns it from now on.
pub(crate) fn take(shape: Shape) -> Option<usize> {
    let mut blocks = lock(&BLOCKS);
    let index = blocks.kept.iter().rposition(|(_, kept)| *kept == shape)?;
    let (address, _) = blocks.kept.remove(index)?;
    blocks.kept_bytes -= shape.bytes as u64;
    let buffer_id = Some(pagemap::fresh_buffer_id());
    blocks.lent.insert(address, Lent { shape, buffer_id });
    ANY_AGAIN.store(true, Ordering::Release);
    blocks.publish();
    Some(address)
}

/// Notes that the program holds this memory.
pub(crate) fn lend(address: usize, lent: Lent) {
    lock(&BLOCKS).lent.insert(address, lent);
}

/// Returns the id of the memory at this address, if it differs from the driver's.
pub(crate) fn buffer_id(address: u64) -> Option<u64> {
    if !ANY_AGAIN.load(Ordering::Acquire) {
        return None;
    }
    let (blocks, address) = (lock(&BLOCKS), address as usize);
    let (begin, Lent { shape, buffer_id }) = blocks.lent.range(..=address).next_back()?;
    buffer_id.filter(|_| address - begin < shape.bytes)
}

/// Returns the owner of an address. Once the driver has freed a piece, it may serve the address
/// again, also to a request of which the library keeps nothing: so this waits for pieces that
/// leave.
pub(crate) fn owner(address: usize) -> Owner {
    if rule_holds(Rule::LeavingMayBeAnothers) {
        while_leaving(|(leaving, _)| *leaving == address);
    }
    let blocks = lock(&BLOCKS);
    match blocks.lent.get(&address) {
        Some(lent) => Owner::Program(*lent),
        None if blocks.freed().any(|(freed, _)| *freed == address) => Owner::Kept,
        None => Owner::Unknown,
    }
}

/// Removes memory that the program frees. Returns `false` if another thread was first.
pub(crate) fn forget(address: usize) -> bool {
    lock(&BLOCKS).lent.remove(&address).is_some()
}

/// Keeps this memory. Returns the oldest pieces, which leave if the total is too large.
pub(crate) fn keep(address: usize, shape: Shape, bytes_max: u64) -> Vec<(usize, Shape)> {
    let mut blocks = lock(&BLOCKS);
    blocks.kept_bytes += shape.bytes as u64;
    blocks.kept.push_back((address, shape));
    let mut too_much = Vec::new();
    while blocks.kept.len() > KEPT_MAX || blocks.kept_bytes > bytes_max {
        let Some((oldest, shape)) = blocks.kept.pop_front() else { break };
        blocks.kept_bytes -= shape.bytes as u64;
        too_much.push((oldest, shape));
    }
    blocks.leaving.extend(&too_much);
    blocks.publish();
    too_much
}

/// Stops keeping the memory of one context, or all of it. Returns what was kept, which now leaves.
pub(crate) fn take_all(context_id: Option<u64>) -> Vec<(usize, Shape)> {
    let mut blocks = lock(&BLOCKS);
    let going = blocks.keep_none(context_id);
    blocks.leaving.extend(&going);
    blocks.publish();
    going
}

/// Notes that the driver has freed this piece, or never will.
pub(crate) fn has_left(address: usize) {
    let mut blocks = lock(&BLOCKS);
    if let Some(index) = blocks.leaving.iter().position(|(leaving, _)| *leaving == address) {
        blocks.leaving.swap_remove(index);
    }
    blocks.publish();
}

/// Returns whether the program has freed the memory at this address, though the driver still has
/// it. Memory that the driver is about to free exists until the driver has done so, and may then be
/// another allocation: so this waits for it.
#[inline]
pub(crate) fn are_kept_at(address: u64) -> bool {
    are_any_kept() && rule_holds(Rule::KeptIsUnknown) && are_kept_around(address as usize)
}

#[cold]
fn are_kept_around(address: usize) -> bool {
    let around = |(begin, shape): &(usize, Shape)| address.wrapping_sub(*begin) < shape.bytes;
    while_leaving(around);
    lock(&BLOCKS).freed().any(around)
}

/// Waits for pieces that other threads are releasing. Returns how many there were.
pub(crate) fn wait_for_leaving() -> usize {
    while_leaving(|_| true)
}

/// Waits as long as such pieces leave. Returns how many there were at first.
fn while_leaving(which: impl Fn(&(usize, Shape)) -> bool) -> usize {
    let count = || lock(&BLOCKS).leaving.iter().filter(|piece| which(piece)).count();
    let at_first = count();
    bounds::PINNED_LEAVES.until(|| count() == 0);
    at_first
}

/// Returns whether any piece is kept, or leaves.
#[inline]
pub(crate) fn are_any_kept() -> bool {
    KEPT_COUNT.load(Ordering::Acquire) != 0
}

/// Returns the number of kept pieces and their bytes, or `None` if another thread does not release
/// the table's lock.
pub(crate) fn kept(wait: LockWait) -> Option<(u64, u64)> {
    let blocks = wait.lock(&BLOCKS)?;
    Some((blocks.kept.len() as u64, blocks.kept_bytes))
}

/// Forgets the memory of a context that the driver has destroyed.
pub(crate) fn context_ended(context_id: u64) {
    let mut blocks = lock(&BLOCKS);
    blocks.keep_none(Some(context_id));
    blocks.leaving.retain(|(_, shape)| shape.context_id != context_id);
    blocks.lent.retain(|_, lent| lent.shape.context_id != context_id);
    blocks.publish();
}

impl Lent {
    /// Memory that is new from the driver.
    pub(crate) fn new(shape: Shape) -> Lent {
        Lent { shape, buffer_id: None }
    }
}

impl Blocks {
    /// Returns the memory that the program has freed and the driver has not.
    fn freed(&self) -> impl Iterator<Item = &(usize, Shape)> {
        self.kept.iter().chain(&self.leaving)
    }

    fn keep_none(&mut self, context_id: Option<u64>) -> Vec<(usize, Shape)> {
        let goes = |shape: &Shape| context_id.is_none_or(|id| shape.context_id == id);
        let (going, staying): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.kept).into_iter().partition(|(_, shape)| goes(shape));
        self.kept_bytes = staying.iter().map(|(_, shape)| shape.bytes as u64).sum();
        self.kept = staying.into();
        going
    }

    fn publish(&self) {
        KEPT_COUNT.store(self.kept.len() + self.leaving.len(), Ordering::Release);
    }
}
