//! Asks peer processes for memory that a request lacks.
//!
//! Note [Peer reclaim]. Without the library, freed memory returns to the device at once, and any
//! process may have it. Under the library, freed memory stays in the process's cache for a while.
//! When the device and the process's own cache have no memory for a request, it therefore asks the
//! peer processes before it fails, through the files in which they answer requests for their
//! statistics. It asks twice. First each process answers how much it could release. If all of that
//! together is not enough, the request fails and no process has lost anything: programs measure
//! free memory by requests that fail. Otherwise each process is asked to release an amount, first
//! what it has not used for a while; it releases the memory that has been unused for longest.
//!
//! Library threads answer and release (`trim/reclaim.rs`). They take no lock that a sender holds,
//! and do not wait for the program. Two processes that ask each other at the same time therefore
//! both get an answer. A sender waits for a bounded time (`patience.rs`), without a lock that a
//! library thread wants. Two processes that need each other's memory in turn take it from one
//! another; each request asks a bounded number of times.
//!
//! With `wait_for_memory_s`, a request for which the processes do not have enough joins a queue
//! (`queue.rs`) and asks again.

use std::time::Duration;

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::control::GpuId;
use cachealloc_statistics::shares::shares;

use crate::clock::Instant;
use crate::driver::api;
use crate::driver::hardware::Hardware;
use crate::driver_memory::limits;
use crate::lock::lock;
use crate::process::bypass;
use crate::state::barriers::LEDGER;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::statistics::counters;
use crate::statistics::counters::Count;
use crate::statistics::waits;
use crate::statistics::waits::Wait;
use crate::thread_state::with_thread_state_saved;
use crate::{config, heap, identity, log, seccomp};

mod pages;
mod patience;
mod queue;

use pages::Peer;
use patience::Patience;
use queue::Place;

/// Maximum number of rounds: others may take what was released for this request.
const ROUNDS_MAX: u32 = 8;
/// Size of a driver's page.
const PAGE_BYTES: u64 = 2 << 20;
/// Extra bytes to ask for after a round was not enough, doubled with each round.
const MORE_BYTES: u64 = 64 << 20;
/// Interval at which a waiting request asks.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Needs of a request that would fail on a device. Nothing may be claimed from the limit for it.
#[derive(Clone, Copy)]
pub(crate) struct Needed {
    pub device: i32,
    /// Number of bytes, or `None` if it is unknown.
    pub bytes: Option<u64>,
    /// The context in which the request is made, if the library knows it. The request ends with it.
    pub context: Option<&'static Context>,
}

/// One request that would fail.
#[derive(Default)]
pub(crate) struct ReclaimRequest {
    begun: Option<Instant>,
    patience: Patience,
    rounds: u32,
    place: Option<Place>,
}

impl ReclaimRequest {
    /// Asks for memory, or waits for it. Returns `false` if no more became available and the
    /// request fails. The caller must hold no lock that a library thread may want.
    #[cold]
    pub(crate) fn try_reclaim(&mut self, needed: Needed) -> bool {
        if !may_ask() && config::get().wait_for_memory_s == 0 {
            return false;
        }
        // This also covers closing files, where the thread may be cancelled.
        with_thread_state_saved(|| {
            may_help(needed) && (self.ask_peers(needed) || self.wait_for_memory(needed))
        })
    }

    /// Whether to try again, after waiting for a while.
    fn wait_for_memory(&mut self, needed: Needed) -> bool {
        let Needed { device, bytes, .. } = needed;
        let longest = Duration::from_secs(config::get().wait_for_memory_s);
        let context = contexts::all().find(|context| context.device == device);
        let is_possible =
            bytes.is_none_or(|bytes| context.is_none_or(|context| bytes <= limits::most(context)));
        let may_wait = is_possible && !longest.is_zero();
        if !may_wait || !bypass::is_caching() || !identity::is_ours() {
            return false;
        }
        let place = self.place.get_or_insert_with(|| {
            log::info(format_args!("a request waits for memory of device {device}"));
            Place::last(gpu_of(device))
        });
        let comes = || waits::timed(Wait::Memory, || place.comes(longest));
        while comes() {
            if needed.context.is_some_and(Context::is_dead) {
                return true; // the driver returns another error for a dead context
            }
            if self.begun.is_none_or(|begun| begun.elapsed() >= ASK_AGAIN) {
                (self.begun, self.patience, self.rounds) = (None, Patience::default(), 0);
                return true;
            }
            // A failing request briefly takes the available memory, and the driver's lock.
            if may_fit(&needed) {
                return true;
            }
        }
        false
    }

    fn ask_peers(&mut self, needed: Needed) -> bool {
        let Needed { device, bytes, .. } = needed;
        self.begun.get_or_insert_with(Instant::now);
        let is_possible = bytes.is_none_or(|bytes| bytes <= limits::left(device));
        if !may_ask() || !is_possible || self.rounds == ROUNDS_MAX {
            return false;
        }
        let peers = Peer::all();
        if peers.is_empty() {
            return false;
        }
        let Some(gpu) = gpu_of(device) else { return false };
        let more_bytes = match self.rounds {
            0 if bytes.is_some() => 0,
            rounds => MORE_BYTES << rounds,
        };
        self.rounds += 1;
        // Without a known context the free memory is unknown, and all of it may be missing.
        let lacks_bytes = bytes.map(|bytes| lack(device, bytes));
        if lacks_bytes == Some(0) && more_bytes == 0 {
            return true; // the memory arrived meanwhile
        }
        let bytes = lacks_bytes.unwrap_or(0).saturating_add(more_bytes);
        let wanted = Wanted { gpu, bytes, all: lacks_bytes.is_some() };
        waits::timed(Wait::Neighbours, || wanted.ask(&peers, &self.patience))
    }
}

/// Whether asking may help. It is not done at the end of the process, which must not take longer
/// than without the library. Nor if most of the device is free and the refused call does not tell
/// how much it lacks: the driver's code for other shortages is the same.
fn may_help(needed: Needed) -> bool {
    let has_most = |context: &'static Context| free_bytes(context) > context.device_bytes / 2;
    let is_other = needed.bytes.is_none()
        && rule_holds(Rule::OtherShortagesFail)
        && on_device(needed.device, has_most).unwrap_or(false);
    !is_other && !is_end()
}

fn is_end() -> bool {
    LEDGER.exclusive.has_observed(Observer::ProcessEnd) && rule_holds(Rule::NoReclaimAtExit)
}

/// Whether enough bytes are free, although perhaps not contiguous.
fn may_fit(needed: &Needed) -> bool {
    let Some(bytes) = needed.bytes else { return false };
    let found = on_device(needed.device, |context| {
        let cached_bytes = {
            let allocator = lock(&context.allocator);
            let stats = allocator.stats();
            stats.reserved_bytes.all.current - stats.allocated_bytes.all.current
        };
        limits::free_bytes(context).saturating_add(cached_bytes)
    });
    found.is_some_and(|found_bytes| bytes <= found_bytes)
}

/// Returns a result for a context on the device that does not end meanwhile, or `None` if there is
/// no context.
fn on_device<T>(device: i32, find: impl Fn(&'static Context) -> T) -> Option<T> {
    contexts::all().filter(|context| context.device == device).find_map(|context| {
        let _open = context.keep_open_soon()?;
        Some(find(context))
    })
}

fn gpu_of(device: i32) -> Option<GpuId> {
    let context = contexts::all().find(|context| context.device == device);
    context.map_or_else(|| Hardware::of(device).id, |context| context.hardware.id)
}

/// Whether peers may be asked. Not if the user wants no files of the library, the library is not
/// working, or the host lacks memory for the names.
fn may_ask() -> bool {
    let able = config::get().live && bypass::is_caching() && identity::is_ours();
    able && !seccomp::is_new() && !heap::is_short() && rule_holds(Rule::PeersAreAsked)
}

/// Returns how many more bytes the device must have for the request.
fn lack(device: i32, bytes: u64) -> u64 {
    let free_bytes = on_device(device, free_bytes).unwrap_or(0);
    bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes).saturating_sub(free_bytes)
}

/// Returns the free memory of the device, according to the driver.
fn free_bytes(context: &'static Context) -> u64 {
    let info = api::relaxed(|| context.enter(api::mem_get_info));
    info.map_or(0, |(free, _)| free as u64)
}

struct Wanted {
    gpu: GpuId,
    bytes: u64,
    /// Whether less than `bytes` is of no use.
    all: bool,
}

impl Wanted {
    /// Asks the peers. Returns whether any process accepted to release something.
    fn ask(&self, peers: &[Peer], patience: &Patience) -> bool {
        let offers = peers.iter().map(|it| it.offers(self.gpu, patience).unwrap_or_default());
        let offers: Vec<_> = offers.collect();
        let shares = shares(&offers, self.bytes.div_ceil(1 << 20), self.all);
        let orders = peers.iter().zip(shares).filter(|(_, mebibytes)| *mebibytes > 0);
        // All commands are sent before waiting, so that all peers release at the same time.
        let orders: Vec<_> = orders
            .filter_map(|(it, mebibytes)| it.is_to_give(self.gpu, mebibytes, patience))
            .collect();
        orders.iter().for_each(|order| order.wait(patience));
        if !orders.is_empty() {
            counters::count(Count::NeighboursAsked);
        }
        !orders.is_empty()
    }
}
