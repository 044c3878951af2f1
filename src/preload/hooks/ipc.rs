//! Memory of one process in another (legacy IPC). Every block can be exported. A block at the start
//! of its segment gets a handle that any importer's driver accepts; any other block gets one that
//! only an importer with this library accepts (`ipc/ipc_handle.rs`).

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_core::order::Observer;
use cachealloc_core::rules::{Rule, rule_holds};

use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::{CuError, CuResult, Handle64};
use crate::functions::Function;
use crate::hooks::observers::observed;
use crate::hooks::{Real, beside, common, guarded, pointer};
use crate::ipc::exported_blocks;
use crate::ipc::imports;
use crate::ipc::imports::CloseAction;
use crate::ipc::ipc_handle;
use crate::ipc::ipc_handle::Inside;
use crate::log;
use crate::ordering::observers;
use crate::pagemap;
use crate::pagemap::{Kind, LiveBlock};
use crate::process::bypass;
use crate::state::contexts::Context;
use crate::statistics::counters;
use crate::statistics::counters::Count;

/// `cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)`, for any address inside a
/// block.
pub(crate) fn get(
    function: &'static Function,
    handle: *mut Handle64,
    address: u64,
    real: impl Real,
) -> CuResult {
    let handle = handle.cast::<ipc_handle::Bytes>();
    let Some(extent) = pagemap::extent_of(address) else {
        return while_caching(real, || observed(function, Observer::Ipc, real));
    };
    if extent.is_expandable() {
        // The driver's own error, which no program expects for memory from `cuMemAlloc`.
        static SAID: AtomicBool = AtomicBool::new(false);
        let code = while_caching(real, || observed(function, Observer::Ipc, real));
        if code.is_err() && !SAID.swap(true, Ordering::Relaxed) {
            log::warn(format_args!(
                "{}: cannot export memory of expandable_segments:true",
                function.base()
            ));
        }
        return code;
    }
    if !bypass::is_caching() {
        // Blocks are no longer marked, so the driver's handle may be returned only if it means the
        // block.
        return if extent.base() == address { real() } else { Err(CuError::INVALID_VALUE) };
    }
    guarded(
        function,
        || match pointer::block_around(extent, address) {
            // Memory of a stream-ordered pool: the plain driver cannot export it (measured).
            Some(block) if block.kind == Kind::Context && !handle.is_null() => {
                export(function, &block, handle, real)
            }
            _ => Err(CuError::INVALID_VALUE),
        },
        || Err(CuError::INVALID_VALUE),
    )
}

/// Exports a block, once the driver has made the handle, which the program receives only when this
/// returns. Waits for the pending barriers, since the importer may read at once. Marks the block,
/// so that no free of another thread reuses it.
fn export(
    function: &'static Function,
    block: &LiveBlock,
    handle: *mut ipc_handle::Bytes,
    real: impl Real,
) -> CuResult {
    common::retried(function, real)?;
    observers::observe(Observer::Ipc);
    if !exported_blocks::mark(block) {
        // SAFETY: the program's place, which the driver has just written. Zeros are no valid
        // handle.
        unsafe { handle.write_unaligned([0; 64]) };
        return Err(CuError::INVALID_VALUE);
    }
    let Some(inside) = exported_blocks::inside(block) else { return Ok(()) };
    if !rule_holds(Rule::InsideHandleIsOurs) {
        return Ok(());
    }
    // SAFETY: the driver has just written it; the program's type has no alignment.
    let plain = unsafe { handle.read_unaligned() };
    let marked = ipc_handle::mark(&plain, inside);
    // SAFETY: as above. Zeros are no valid handle.
    unsafe { handle.write_unaligned(marked.unwrap_or([0; 64])) };
    if marked.is_none() {
        log::warn(format_args!("{}: cannot encode {inside:?} in an IPC handle", function.base()));
        return Err(CuError::INVALID_VALUE);
    }
    Ok(())
}

/// `cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)`, both
/// versions.
pub(crate) fn open(
    function: &'static Function,
    pointer: *mut u64,
    handle: Handle64,
    flags: u32,
    real: impl Real,
) -> CuResult {
    if pointer.is_null() {
        return real();
    }
    let Some((plain, inside)) = ipc_handle::read(&ipc_handle::bytes_of(handle)) else {
        let code = observed(function, Observer::Ipc, real);
        if code.is_ok() {
            // SAFETY: the driver has just written it.
            let address = unsafe { pointer.read_unaligned() };
            beside(function, || note_whole(address));
        }
        return code;
    };
    guarded(
        function,
        || {
            let address = open_inside(function, &plain, inside, flags)?;
            observers::observe(Observer::Ipc);
            // SAFETY: the program passed it for this result.
            unsafe { pointer.write_unaligned(address) };
            Ok(())
        },
        real,
    )
}

fn open_inside(
    function: &'static Function,
    plain: &ipc_handle::Bytes,
    inside: Inside,
    flags: u32,
) -> CuResult<u64> {
    let context_id = lookup::current()?.id;
    let (mut base, handle) = (0, ipc_handle::by_value(plain));
    common::retried_mut(function, &mut || {
        // SAFETY: this hook serves both versions.
        base = unsafe { api::ipc_open_mem_handle(function.id, handle, flags) }?;
        Ok(())
    })?;
    if !lies_in_mapping(base, inside) {
        log::warn(format_args!("{}: {inside:?} lies outside the opened mapping", function.base()));
        let _ = api::ipc_close_mem_handle(base);
        return Err(CuError::INVALID_VALUE);
    }
    counters::count(Count::BlocksImported);
    let end = inside.offset.saturating_add(inside.requested_bytes);
    pagemap::forget_ended(base, end, Context::is_over);
    Ok(imports::opened(base, inside, context_id))
}

fn note_whole(address: u64) {
    pagemap::forget_ended(address, 1, Context::is_over);
    if let Ok(context) = lookup::current() {
        imports::opened_whole(address, context.id);
    }
}

/// Returns whether the block lies in the opened mapping, or `true` if the driver does not report
/// the size of the mapping.
fn lies_in_mapping(base: u64, inside: Inside) -> bool {
    let end = inside.offset.saturating_add(inside.requested_bytes);
    let fits = |(start, bytes)| start <= base && end <= bytes as u64 - (base - start);
    api::mem_get_address_range(base).map_or(true, fits)
}

/// `cuIpcCloseMemHandle(CUdeviceptr pointer)`, for the address that the open returned.
pub(crate) fn close(function: &'static Function, address: u64, real: impl Real) -> CuResult {
    let mut closing = CloseAction::Unknown;
    beside(function, || closing = imports::closes(address));
    let code = match closing {
        CloseAction::Refused => return Err(CuError::INVALID_VALUE),
        CloseAction::Unknown | CloseAction::Whole { .. } => ended_by(function, real),
        CloseAction::Inside(import) => {
            ended_by(function, || api::ipc_close_mem_handle(import.base()))
        }
    };
    if code.is_err() {
        beside(function, || imports::close_failed(closing));
    }
    code
}

/// Closes a mapping by this call of the driver.
fn ended_by(function: &'static Function, close: impl Real) -> CuResult {
    while_caching(close, || common::pass(function, close))
}

fn while_caching(real: impl Real, hooked: impl FnOnce() -> CuResult) -> CuResult {
    if bypass::is_caching() { hooked() } else { real() }
}

/// Events of other processes: work that the library's barriers do not order.
pub(crate) fn event(function: &'static Function, real: impl Real) -> CuResult {
    observed(function, Observer::Ipc, real)
}
