//! Pinned memory that the program has, and what it has freed: the tables of `pinned_memory.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachealloc_core::rules::{Rule, rule_holds};

use crate::lock::lock;
use crate::process::patience::Patience;

/// So many are looked through in less time than the free of one saves.
const KEPT_MAX: usize = 256;

static BLOCKS: Mutex<Blocks> =
    Mutex::new(Blocks { lent: BTreeMap::new(), kept: VecDeque::new(), kept_bytes: 0 });

/// How many pieces are kept, readable without the lock.
static KEPT_COUNT: AtomicUsize = AtomicUsize::new(0);

struct Blocks {
    /// What the program has, by address.
    lent: BTreeMap<usize, Shape>,
    /// What it has freed, oldest first.
    kept: VecDeque<(usize, Shape)>,
    kept_bytes: u64,
}

/// What a request must have in common with the memory that serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub context_id: u64,
    /// The id of the driver's function.
    pub function: usize,
    pub flags: u32,
    pub bytes: usize,
}

/// Whose memory an address is.
pub(crate) enum Owner {
    /// The program, from here.
    Program(Shape),
    /// The program has freed it, and it is kept.
    Kept,
    Unknown,
}

/// Memory that is kept, and the program's from now on.
pub(crate) fn take(shape: Shape) -> Option<usize> {
    let mut blocks = lock(&BLOCKS);
    let index = blocks.kept.iter().rposition(|(_, kept)| *kept == shape)?;
    let (address, _) = blocks.kept.remove(index)?;
    blocks.kept_bytes -= shape.bytes as u64;
    blocks.lent.insert(address, shape);
    blocks.publish();
    Some(address)
}

/// The program has this memory.
pub(crate) fn lend(address: usize, shape: Shape) {
    lock(&BLOCKS).lent.insert(address, shape);
}

pub(crate) fn owner(address: usize) -> Owner {
    let blocks = lock(&BLOCKS);
    match blocks.lent.get(&address) {
        Some(shape) => Owner::Program(*shape),
        None if blocks.kept.iter().any(|(kept, _)| *kept == address) => Owner::Kept,
        None => Owner::Unknown,
    }
}

/// The program has it no longer. False: another thread was first.
pub(crate) fn forget(address: usize) -> bool {
    lock(&BLOCKS).lent.remove(&address).is_some()
}

/// Keeps this memory. Returns the oldest, which gives way where there is too much.
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
    blocks.publish();
    too_much
}

/// Keeps none of one context, or none at all. Returns what was kept.
pub(crate) fn take_all(context_id: Option<u64>) -> Vec<(usize, Shape)> {
    let mut blocks = lock(&BLOCKS);
    let goes = |shape: &Shape| context_id.is_none_or(|id| shape.context_id == id);
    let (going, staying): (Vec<_>, Vec<_>) =
        core::mem::take(&mut blocks.kept).into_iter().partition(|(_, shape)| goes(shape));
    blocks.kept_bytes = staying.iter().map(|(_, shape)| shape.bytes as u64).sum();
    blocks.kept = staying.into();
    blocks.publish();
    going
}

/// Whether the program has freed what is at this address: to it there is nothing, though the driver has it still.
#[inline]
pub(crate) fn are_kept_at(address: u64) -> bool {
    KEPT_COUNT.load(Ordering::Acquire) != 0 && lock(&BLOCKS).keep(address as usize)
}

/// How many pieces are kept, and their bytes. None: another thread does not let go of the table.
pub(crate) fn kept(patience: Patience) -> Option<(u64, u64)> {
    let blocks = patience.lock(&BLOCKS)?;
    Some((blocks.kept.len() as u64, blocks.kept_bytes))
}

/// The driver has destroyed the context, and its memory with it.
pub(crate) fn context_ended(context_id: u64) {
    take_all(Some(context_id));
    lock(&BLOCKS).lent.retain(|_, shape| shape.context_id != context_id);
}

impl Blocks {
    #[cold]
    fn keep(&self, address: usize) -> bool {
        let around = |(begin, shape): &(usize, Shape)| address.wrapping_sub(*begin) < shape.bytes;
        self.kept.iter().any(around) && rule_holds(Rule::KeptIsUnknown)
    }

    fn publish(&self) {
        KEPT_COUNT.store(self.kept.len(), Ordering::Release);
    }
}
