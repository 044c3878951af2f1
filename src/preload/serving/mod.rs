//! Handles calls by which the driver serves memory to the program. The bytes, as far as the
//! arguments tell, are claimed from the limit before the driver is called. What it served is
//! entered in the table.

pub(crate) mod claims;
pub(crate) mod refused_call;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::breakdown::Component;

use crate::cache::all_work;
use crate::cache::pools;
use crate::cache::release;
use crate::config;
use crate::contexts::lookup;
use crate::driver::sys::{CuError, CuResult, PoolHandle};
use crate::driver::{api, changes};
use crate::driver_memory::ending::Ending;
use crate::driver_memory::limits::Claim;
use crate::driver_memory::notify::Named;
use crate::driver_memory::pool_devices;
use crate::driver_memory::pool_devices::Place;
use crate::driver_memory::table;
use crate::driver_memory::table::{Key, Served};
use crate::driver_memory::{ending, forecast};
use crate::peer_reclaim::{Needed, ReclaimRequest};
use crate::record::{HOST, capture};
use crate::state::contexts::Context;
use crate::state::thread;
use crate::state::thread::Thread;
use crate::state::under_way::Waiter;

/// A request of the program.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub kind: MemoryKind,
    pub bytes: u64,
    /// Whether the request counts against the limit.
    pub counts: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum MemoryKind {
    Linear,
    /// Managed memory, which lies on the device as far as it was last used there.
    Managed,
    /// From the named pool, or the default one.
    Pooled(Option<PoolHandle>),
    Array,
    /// Physical memory of a device, or of `HOST`, to be mapped.
    Physical(i32),
    /// Pinned memory of the host.
    Host,
    /// Memory of the host that the program registers.
    Registered,
}

/// A function by which the program ends memory. The driver refuses to end other memory by it, and
/// waits for nothing.
#[derive(Clone, Copy)]
pub(crate) enum EndsBy {
    Free,
    FreeHost,
    Unregister,
    DestroyArray,
}

/// A request that the limit allows. Dropping it, after the driver has refused, gives the claim
/// back.
#[must_use]
pub(crate) struct ChargedRequest {
    kind: MemoryKind,
    served: Served,
    claim: Option<Claim>,
}

/// Claims the bytes of a request before the driver is called. Fails if the limit forbids it.
/// Returns `None` without a current context, which the driver reports.
pub(crate) fn ask(wanted: Wanted) -> CuResult<Option<ChargedRequest>> {
    let Wanted { kind, bytes, mut counts } = wanted;
    let place = match kind {
        MemoryKind::Physical(device) => Some((device, 0)),
        _ => current(),
    };
    let Some((mut device, mut context_id)) = place else { return Ok(None) };
    if let MemoryKind::Host | MemoryKind::Registered = kind {
        device = HOST;
    }
    if let MemoryKind::Pooled(pool) = kind {
        // The memory outlives the context in which it was requested.
        context_id = 0;
        match pool.and_then(device_of_pool) {
            Some(Some(of_pool)) => device = of_pool,
            Some(None) => counts = false,
            None => {}
        }
    }
    let mut claim = None;
    if counts {
        claim = claims::charge_with_reclaim(device, bytes, waiter(kind));
        if claim.is_none() {
            // In a host function, the driver refuses the request for another reason.
            let refused = thread::with(Thread::refused_inside_callback);
            return Err(refused.unwrap_or(CuError::OUT_OF_MEMORY));
        }
    }
    let component = component_of(kind);
    let registered = matches!(kind, MemoryKind::Registered);
    let served = Served { device, bytes, context_id, component, registered, ..Served::default() };
    Ok(Some(ChargedRequest { kind, served, claim }))
}

impl ChargedRequest {
    /// Makes the caches release their free memory before the driver is called, if the driver is
    /// expected to have too little.
    pub(crate) fn make_room(&self) {
        let Served { device, bytes, .. } = self.served;
        if config::only_looks() {
            return;
        }
        // Memory that does not count is not on the device, or the driver refuses it for its
        // arguments.
        let Some(context) = lookup::current().ok().filter(|_| self.claim.is_some()) else { return };
        // For an unknown pool, the device whose memory it takes is unknown too.
        if matches!(self.kind, MemoryKind::Pooled(Some(pool)) if device_of_pool(pool).is_none()) {
            return;
        }
        let is_possible = context.device == device && bytes <= context.device_bytes;
        if is_possible && !forecast::may_serve_here(device, bytes) {
            let waiter = waiter(self.kind);
            let _ = api::relaxed(|| release::everything_free(Some(device), waiter)); // the driver answers
        }
    }

    /// Whether peer processes released memory for a request that the driver has refused, so that
    /// the caller should try again. Nothing is claimed meanwhile: other requests of the program
    /// must not fail because of one that waits.
    pub(crate) fn try_reclaim(&mut self, reclaim: &mut ReclaimRequest, code: CuResult) -> bool {
        let Served { device, bytes, .. } = self.served;
        let on_device = self.is_on_device();
        let needed = Needed { device, bytes: Some(bytes), context: lookup::current().ok() };
        if !on_device || code != Err(CuError::OUT_OF_MEMORY) || config::only_looks() {
            return false;
        }
        let (counts, waiter) = (self.claim.take().is_some(), waiter(self.kind));
        let claim = || claims::charge_with_reclaim(device, bytes, waiter);
        while reclaim.try_reclaim(needed) {
            self.claim = if counts { claim() } else { None };
            if !counts || self.claim.is_some() {
                return true;
            }
        }
        false
    }

    /// Whether the memory lies on a device from the start.
    pub(crate) fn is_on_device(&self) -> bool {
        let Served { device, component, .. } = self.served;
        device != HOST && !matches!(component, Some(Component::Managed | Component::Pinned))
    }

    /// Grows the claim if the driver serves more than the arguments imply. Returns `false` if the
    /// limit does not allow that.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        self.served.bytes = bytes;
        let waiter = waiter(self.kind);
        self.claim.as_mut().is_none_or(|claim| claims::grow_with_reclaim(claim, bytes, waiter))
    }

    /// Enters what the driver has served, at this address or with this handle.
    pub(crate) fn served(self, number: u64) -> Named {
        let ChargedRequest { kind, mut served, claim } = self;
        served.claimed_bytes = claim.map_or(0, Claim::keep);
        let key = match kind {
            MemoryKind::Physical(device) => {
                let (bytes, claimed_bytes) = (served.bytes, served.claimed_bytes);
                table::created(number, device, bytes, claimed_bytes, capture::of_allocation());
                return Named::Physical(number);
            }
            MemoryKind::Array => Key::Array(number),
            _ => Key::Memory(number),
        };
        served.stack = capture::of_allocation();
        table::enter(key, served);
        Named::Place(key)
    }
}

/// Serves linear memory by the driver's `call`. `address` is read only if that succeeds.
pub(crate) fn serve(
    wanted: Wanted,
    mut call: impl FnMut() -> CuResult,
    address: impl FnOnce() -> u64,
) -> CuResult {
    let mut asked = ask(wanted)?;
    asked.iter().for_each(ChargedRequest::make_room);
    let mut call = || changes::during(&mut call);
    let (mut code, mut reclaim) = (call(), ReclaimRequest::default());
    while asked.as_mut().is_some_and(|asked| asked.try_reclaim(&mut reclaim, code)) {
        code = call();
    }
    if code.is_ok()
        && let Some(asked) = asked
    {
        asked.served(address());
    }
    code
}

/// Runs the driver's free of this address. `call` gets the id of the memory's context, 0 if it has
/// none or is not known.
pub(crate) fn free_by(address: u64, call: impl FnOnce(u64) -> CuResult) -> CuResult {
    let ending = ending::ends(Key::Memory(address));
    let owner = ending.served.first().map_or(0, |(_, served)| served.context_id);
    let code = changes::during(|| call(owner));
    ending.finish(code);
    code
}

/// Waits for the work for which the driver waits when the program ends this memory. The driver's
/// call holds the context during its wait, and no cached memory of the context can be released
/// then. Another thread may need it, whose request nothing delays on the plain driver.
#[inline(always)]
pub(crate) fn wait_before_end(key: Key, by: EndsBy) {
    if !config::caches_nothing() && rule_holds(Rule::DriversWaitIsWaitedAhead) {
        wait_with_cache(key, by);
    }
}

#[inline(never)]
fn wait_with_cache(key: Key, by: EndsBy) {
    use Component::{Arrays, Linear, Managed, Pinned};
    let Some(served) = table::served(key) else { return };
    let ends = match by {
        EndsBy::Free => matches!(served.component, Some(Linear | Managed)),
        EndsBy::FreeHost => served.component == Some(Pinned) && !served.registered,
        EndsBy::Unregister => served.component == Some(Pinned) && served.registered,
        EndsBy::DestroyArray => served.component == Some(Arrays),
    };
    let ends = ends || !rule_holds(Rule::WrongEndWaitsForNothing);
    // The driver waits for the context of the memory.
    let is_own = |context: &Context| {
        served.context_id == context.id || !rule_holds(Rule::OwnersWorkIsWaitedFor)
    };
    if ends
        && let Ok(context) = lookup::current()
        && is_own(context)
    {
        thread::with(|thread| all_work::wait_ahead(thread, context));
    }
}

/// Removes memory that the program ends by a call that waits for work. Waits for the work first.
pub(crate) fn wait_and_end(key: Key, by: EndsBy) -> Ending {
    wait_before_end(key, by);
    ending::ends(key)
}

/// Component of the breakdown that has the memory, or `None` if it is counted elsewhere, once for
/// all its mappings.
fn component_of(kind: MemoryKind) -> Option<Component> {
    match kind {
        MemoryKind::Linear => Some(Component::Linear),
        MemoryKind::Managed => Some(Component::Managed),
        MemoryKind::Pooled(pool) => match pool.and_then(device_of_pool) {
            Some(None) => Some(Component::Pinned),
            _ => Some(Component::PoolsHeld),
        },
        MemoryKind::Array => Some(Component::Arrays),
        MemoryKind::Physical(_) => None,
        MemoryKind::Host | MemoryKind::Registered => Some(Component::Pinned),
    }
}

/// Whether the driver serves such a request after another thread's waiting free, or fails at once
/// while that free has the memory (measured).
fn waiter(kind: MemoryKind) -> Waiter {
    match kind {
        MemoryKind::Pooled(_) | MemoryKind::Physical(_) => Waiter::GoesOn,
        MemoryKind::Linear
        | MemoryKind::Managed
        | MemoryKind::Array
        | MemoryKind::Host
        | MemoryKind::Registered => Waiter::StandsStill,
    }
}

/// Returns the device that a pool allocates from, if known, or `Some(None)` for a pool without a
/// device.
fn device_of_pool(pool: PoolHandle) -> Option<Option<i32>> {
    let place = pool_devices::of(pool);
    place.map(Place::device).or_else(|| pools::device_of_default(pool).map(Some))
}

/// Returns the current context's device and id.
fn current() -> Option<(i32, u64)> {
    if let Ok(context) = lookup::current() {
        return Some((context.device, context.id));
    }
    api::ctx_get_device().ok().map(|device| (device, 0))
}
