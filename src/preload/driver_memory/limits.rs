//! Limits of the device memory that the process may hold (`gpu_memory_limit_mb`,
//! `per_process_memory_fraction`), and the memory that counts against them: the cache's segments,
//! and memory that the driver serves the program directly.
//!
//! Bytes are claimed before the driver is called, and given back if it refuses, so that racing
//! threads together do not exceed the limit. They are counted without a limit too, so that a later
//! one (`set`) knows what is held. The table (`table.rs`) has what the driver serves, and gives
//! back what ends.
//!
//! Managed, pinned and registered memory, and opened or imported memory are not counted, because
//! they need not lie on the device or belong to another process. Contexts, modules, graph memory,
//! and what a driver's pool keeps for later are not counted, because no call of the program
//! requests them.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use cachealloc_core::Allocator;
use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_statistics::Limit;

use crate::apart;
use crate::config;
use crate::driver::api;
use crate::lock::lock;
use crate::process::lock_timeout::LockWait;
use crate::state::contexts;
use crate::state::contexts::Context;
use crate::test_delay::test_delay;

const DEVICES_MAX: usize = 64;
const NO_LIMIT: u64 = u64::MAX;
/// Limit of a device to which the options have not been applied yet.
const NOT_KNOWN: u64 = u64::MAX - 1;

struct Device {
    limit_bytes: AtomicU64,
    held_bytes: AtomicU64,
    /// Number of the `LimitSource` that set the limit.
    set_by: AtomicU8,
}

#[derive(Clone, Copy, PartialEq)]
enum LimitSource {
    Options,
    Call,
    Order,
}

static DEVICES: [Device; DEVICES_MAX] = [const {
    Device {
        limit_bytes: AtomicU64::new(NOT_KNOWN),
        held_bytes: AtomicU64::new(0),
        set_by: AtomicU8::new(LimitSource::Options as u8),
    }
}; DEVICES_MAX];

/// Bytes claimed for a call about to be made. Dropping it gives them back.
#[must_use]
pub(crate) struct Claim {
    device: i32,
    bytes: u64,
}

/// Limit of a device, for a report.
pub(crate) struct LimitUse {
    pub limit_bytes: u64,
    pub held_bytes: u64,
    /// The option or call that set the limit.
    pub option: &'static str,
}

/// Returns the limit of a device, if it has one.
#[inline]
pub(crate) fn of(device: i32) -> Option<u64> {
    if config::limits() { known(device) } else { None }
}

/// Returns the most bytes of a device that the process can hold.
pub(crate) fn most(context: &Context) -> u64 {
    of(context.device).map_or(context.device_bytes, |limit| limit.min(context.device_bytes))
}

/// Returns how many bytes the limit still allows, or `u64::MAX` without one.
pub(crate) fn left(device: i32) -> u64 {
    of(device).map_or(u64::MAX, |limit| limit.saturating_sub(held(device)))
}

/// Returns the bytes that this context could still get from the driver.
pub(crate) fn free_bytes(context: &Context) -> u64 {
    let info = api::relaxed(|| context.enter(api::mem_get_info));
    info.map_or(0, |(free, _)| free as u64).min(left(context.device))
}

/// Sets the limit of a device from now on; 0 removes it. Memory held above the limit stays until it
/// is freed. Returns `false` if there is no such device.
pub(crate) fn set(device: i32, bytes: u64) -> bool {
    is_device(device) && {
        put(device, bytes, LimitSource::Call);
        contexts::all().filter(|context| context.device == device).for_each(|context| {
            tell(&mut lock(&context.allocator), device, context.device_bytes);
        });
        true
    }
}

/// Sets the limit for a control command of another process, for one device or all, without a call
/// to the driver. Fails with EBUSY if a stopped thread holds a lock; the limit holds nevertheless.
pub(crate) fn set_by_order(device: Option<i32>, bytes: Option<u64>) -> Result<(), i32> {
    let devices = device.map_or(0..DEVICES_MAX as i32, |device| device..device + 1);
    devices.for_each(|device| put(device, bytes.unwrap_or(0), LimitSource::Order));
    for context in contexts::all().filter(|it| device.is_none_or(|device| it.device == device)) {
        let mut allocator = LockWait::Timeout.lock(&context.allocator).ok_or(libc::EBUSY)?;
        tell(&mut allocator, context.device, context.device_bytes);
    }
    Ok(())
}

/// Whether the driver has this device and the library has a row for it.
pub(crate) fn is_device(device: i32) -> bool {
    row(device).is_some() && api::device_total_mem(device).is_ok()
}

fn put(device: i32, bytes: u64, by: LimitSource) {
    let Some(row) = row(device) else { return };
    config::note_limit();
    row.set_by.store(by as u8, Ordering::Relaxed);
    row.limit_bytes.store(if bytes == 0 { NO_LIMIT } else { bytes }, Ordering::Relaxed);
}

/// Returns the limit of each device on which the process has a context, without a call to the
/// driver.
pub(crate) fn all() -> Vec<Limit> {
    let mut all: Vec<Limit> = Vec::new();
    for context in contexts::all().filter(|context| row(context.device).is_some()) {
        let device = context.device;
        if all.iter().all(|limit| limit.device != device) {
            let set = row(device).map_or(NO_LIMIT, |row| row.limit_bytes.load(Ordering::Relaxed));
            let limit_bytes = match set {
                NOT_KNOWN => config::get().limit.on(context.device_bytes),
                NO_LIMIT => None,
                bytes => Some(bytes),
            };
            all.push(Limit { device, limit_bytes, held_bytes: held(device) });
        }
    }
    all.sort_unstable_by_key(|limit| limit.device);
    all
}

/// Passes the limit, or else the size of the device, to an allocator: as its capacity, and as the
/// limit for garbage collection if that is on. The allocator itself refuses requests above its
/// limit.
pub(crate) fn tell(allocator: &mut Allocator, device: i32, device_bytes: u64) {
    let limit_bytes = of(device).filter(|limit| *limit < device_bytes);
    let bytes = limit_bytes.unwrap_or(device_bytes);
    let known_bytes = (bytes != u64::MAX).then_some(bytes);
    let collects = config::get().policy.garbage_collection_threshold > 0.0;
    allocator.set_limit(known_bytes.filter(|_| collects));
    allocator.set_capacity(known_bytes, limit_bytes.is_some());
}

/// Claims bytes. Returns `None` if the limit does not allow them.
pub(crate) fn claim(device: i32, bytes: u64) -> Option<Claim> {
    let limit_bytes = of(device).unwrap_or(NO_LIMIT);
    let Some(row) = row(device) else { return Some(Claim { device, bytes }) };
    let sum = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= limit_bytes);
    if !rule_holds(Rule::LimitClaimsFirst) {
        sum(row.held_bytes.load(Ordering::Relaxed))?;
        return Some(claim_late(row, device, bytes));
    }
    let added = row.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
    match added {
        Ok(_) => Some(Claim { device, bytes }),
        // No device has that much: the driver refuses it.
        Err(_) if limit_bytes == NO_LIMIT => Some(Claim { device, bytes: 0 }),
        Err(_) => None,
    }
}

/// The end of `claim` without `Rule::LimitClaimsFirst`: another thread may have claimed the same
/// bytes.
#[cold]
fn claim_late(row: &Device, device: i32, bytes: u64) -> Claim {
    test_delay(Rule::LimitClaimsFirst);
    row.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    Claim { device, bytes }
}

/// Gives back claimed bytes that are no longer held.
pub(crate) fn give_back(device: i32, bytes: u64) {
    if let Some(row) = row(device) {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        let _ = row.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Returns the limit of a device and how much of it is used, for a report.
pub(crate) fn use_of(device: i32) -> Option<LimitUse> {
    let limit_bytes = of(device)?;
    let set_by = row(device)?.set_by.load(Ordering::Relaxed);
    let by_size = config::get().limit.bytes == Some(limit_bytes);
    let option = match by_size {
        _ if set_by == LimitSource::Call as u8 => "cachealloc_set_limit",
        _ if set_by == LimitSource::Order as u8 => "`cachealloc limit`",
        true => "gpu_memory_limit_mb",
        false => "per_process_memory_fraction",
    };
    Some(LimitUse { limit_bytes, held_bytes: held(device), option })
}

/// Returns the free and total bytes to show in `cuMemGetInfo`, given the driver's own and what the
/// caches could release.
pub(crate) fn shown(device: i32, free: u64, total: u64, reclaimable: u64) -> (u64, u64) {
    let limit_bytes = of(device).unwrap_or(NO_LIMIT);
    let total = total.min(limit_bytes);
    // The process may hold more than a limit that was set later.
    let left_bytes = limit_bytes.saturating_sub(held(device).saturating_sub(reclaimable));
    (free.saturating_add(reclaimable).min(left_bytes).min(total), total)
}

impl Claim {
    /// Keeps the claim after the driver has provided the bytes, and returns their number.
    pub(crate) fn keep(self) -> u64 {
        let bytes = self.bytes;
        core::mem::forget(self);
        bytes
    }

    /// Grows the claim to what the driver provides. Returns `false` if the limit does not allow
    /// that.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let Some(more) = claim(self.device, bytes.saturating_sub(self.bytes)) else { return false };
        self.bytes += more.bytes;
        more.keep();
        true
    }

    pub(crate) fn device(&self) -> i32 {
        self.device
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        give_back(self.device, self.bytes);
    }
}

fn held(device: i32) -> u64 {
    row(device).map_or(0, |row| row.held_bytes.load(Ordering::Relaxed))
}

fn row(device: i32) -> Option<&'static Device> {
    DEVICES.get(usize::try_from(device).ok()?)
}

fn known(device: i32) -> Option<u64> {
    let row = row(device)?;
    let limit_bytes = match row.limit_bytes.load(Ordering::Relaxed) {
        NOT_KNOWN => by_options(row, device),
        known => known,
    };
    (limit_bytes != NO_LIMIT).then_some(limit_bytes)
}

#[cold]
fn by_options(row: &Device, device: i32) -> u64 {
    // If this fails, the driver itself reports it to any use of the device.
    let total_bytes = apart::with_descriptors(|| api::device_total_mem(device));
    let Some(Ok(total_bytes)) = total_bytes else { return NO_LIMIT };
    let limit_bytes = config::get().limit.on(total_bytes as u64).unwrap_or(NO_LIMIT);
    let order = Ordering::Relaxed;
    match row.limit_bytes.compare_exchange(NOT_KNOWN, limit_bytes, order, order) {
        Ok(_) => limit_bytes,
        Err(set) => set,
    }
}
