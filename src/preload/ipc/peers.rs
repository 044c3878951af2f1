//! Peer access that the library enables itself. A program that opens a device's default pool to
//! another device (`cuMemPoolSetAccess`) also opens the memory it already has from the pool. That
//! memory may be in the cache's segments, which no pool contains. So the library enables access to
//! their context instead, and hides that from the program's view of peer access between contexts.

use std::sync::Mutex;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::cache::arenas;
use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult};
use crate::lock::lock;
use crate::log;
use crate::ordering::observers;
use crate::state::contexts;
use crate::state::contexts::Context;

static PEERS: Mutex<Peers> = Mutex::new(Peers { pools: Vec::new(), opened: Vec::new() });

struct Peers {
    /// Default pools that are open to other devices.
    pools: Vec<Opening>,
    /// Accesses that the library enabled, by context ids, and whether the program believes it
    /// enabled them.
    opened: Vec<(Opening, bool)>,
}

/// Access of `guest` to the memory of `owner`: devices or contexts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Opening {
    owner: u64,
    guest: u64,
}

/// Notes that the program has opened the default pool of one device to another.
pub(crate) fn pool_opened(owner: i32, guest: i32) {
    let opening = Opening { owner: owner as u64, guest: guest as u64 };
    {
        let mut peers = lock(&PEERS);
        if owner == guest || peers.pools.contains(&opening) {
            return;
        }
        peers.pools.push(opening);
    }
    // A context that only computes has not requested memory from the library.
    let seen = observers::contexts_seen();
    let met = seen.into_iter().filter_map(|seen| lookup::of_handle(seen.handle).ok());
    met.filter(|context| context.device == guest).for_each(|context| open_to(context, owner));
}

/// Opens pools to a context that was created or retained, if they are already open to its device.
pub(crate) fn context_seen(context: &'static Context) {
    let owners: Vec<u64> = {
        let peers = lock(&PEERS);
        let of_guest = peers.pools.iter().filter(|pool| pool.guest == context.device as u64);
        of_guest.map(|pool| pool.owner).collect()
    };
    owners.into_iter().for_each(|owner| open_to(context, owner as i32));
}

/// Whether any pool was opened, which most programs do not do.
pub(crate) fn any() -> bool {
    !lock(&PEERS).pools.is_empty()
}

/// Corrects the result `code` of `cuCtxEnablePeerAccess` for work of `guest` in memory of `owner`.
pub(crate) fn enabled(guest: u64, owner: u64, code: CuResult) -> CuResult {
    match lock(&PEERS).of_program(Opening { owner, guest }) {
        Some(of_program) if code == Err(CuError::PEER_ACCESS_ALREADY_ENABLED) && !*of_program => {
            *of_program = true;
            Ok(())
        }
        _ => code,
    }
}

/// Returns the result of `cuCtxDisablePeerAccess` if the library enabled the access and it has to
/// stay.
pub(crate) fn disabled(guest: u64, owner: u64) -> Option<CuResult> {
    let mut peers = lock(&PEERS);
    let of_program = peers.of_program(Opening { owner, guest })?;
    let was = core::mem::replace(of_program, false);
    Some(if was { Ok(()) } else { Err(CuError::PEER_ACCESS_NOT_ENABLED) })
}

impl Peers {
    fn of_program(&mut self, opening: Opening) -> Option<&mut bool> {
        let mut opened = self.opened.iter_mut();
        opened.find(|(known, _)| *known == opening).map(|(_, of_program)| of_program)
    }
}

/// Makes everything in the caches of a device reachable for a context.
fn open_to(guest: &'static Context, owner: i32) {
    let owners = contexts::all().filter(|context| context.device == owner && has_memory(context));
    for context in owners {
        arenas::admit_peer(context, guest.device);
        let code = api::relaxed(|| guest.enter(|| api::ctx_enable_peer_access(context.handle, 0)));
        match code {
            Ok(()) => note_opened(context, guest, false),
            // The program enabled it first, and may disable it while the pool stays open.
            Err(CuError::PEER_ACCESS_ALREADY_ENABLED) => {
                if rule_holds(Rule::OpenedStaysOpen) {
                    note_opened(context, guest, true);
                }
            }
            Err(error) => log::warn(format_args!(
                "cannot open the pool memory of device {} to device {}: {error}",
                owner, guest.device
            )),
        }
    }
}

/// Notes access that has to stay, unless that is known. `of_program`: the program has enabled it.
fn note_opened(owner: &Context, guest: &Context, of_program: bool) {
    let (mut peers, opening) = (lock(&PEERS), Opening { owner: owner.id, guest: guest.id });
    if peers.of_program(opening).is_none() {
        peers.opened.push((opening, of_program));
    }
}

fn has_memory(context: &Context) -> bool {
    lock(&context.allocator).stats().reserved_bytes.all.current != 0
}
