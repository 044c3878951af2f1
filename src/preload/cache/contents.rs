//! What memory contains when the program gets it (`fill`), and whether the program wrote past its end
//! (`red_zone`): exposes bugs that caching hides. Natively fresh memory is often zero, and an overrun
//! does no harm.
//!
//! Both work on a stream of ours and wait for it. That stream belongs to the context, so its work comes
//! behind the barrier of the free before; it waits for no later work of the program. Memory requested in
//! stream order is filled on that stream, by a submission like the program's own.

use std::fmt::Write as _;

use cachealloc_core::rules::{Rule, rule_holds};
use cachealloc_history::{Describe, StackId};
use cachealloc_options::Fill;

use crate::contexts::Context;
use crate::driver::api;
use crate::driver::sys::{CuResult, STREAM_NON_BLOCKING, SUCCESS, StreamHandle};
use crate::lock::lock;
use crate::ordering::submissions;
use crate::snapshots::contents;
use crate::{config, log};

const POISON: u8 = 0xff;
const ZONE: u8 = 0xa5;
const FRAMES_SHOWN: usize = 8;

/// The program is about to get these bytes. `stream`: the stream of the request, if any; otherwise they
/// are ready when this returns. Failure changes nothing: the contents are a help, not a promise.
#[inline]
pub fn prepare(context: &'static Context, address: u64, bytes: u64, stream: Option<StreamHandle>) {
    if config::minds_contents() {
        write(context, address, bytes, config::zone_bytes(), stream);
    }
}

/// As `prepare`, for memory from the driver: it has no red zone.
#[inline]
pub fn fill(context: &'static Context, address: u64, bytes: u64, stream: Option<StreamHandle>) {
    write(context, address, bytes, 0, stream);
}

#[cold]
fn write(
    context: &'static Context,
    address: u64,
    bytes: u64,
    zone_bytes: u64,
    stream: Option<StreamHandle>,
) {
    let set = |stream| {
        let fill = |address, value, bytes: u64| match bytes {
            0 => SUCCESS,
            _ => api::memset_d8_async(address, value, bytes as usize, stream),
        };
        let code = match config::get().fill {
            Fill::None => SUCCESS,
            Fill::Zero => fill(address, 0, bytes),
            Fill::Poison => fill(address, POISON, bytes),
        };
        code.max(fill(address + bytes, ZONE, zone_bytes))
    };
    match stream {
        Some(stream) if rule_holds(Rule::OwnWorkCounts) => {
            _ = submissions::counted(false, || api::relaxed(|| set(stream)));
        }
        Some(stream) => _ = api::relaxed(|| set(stream)),
        None => _ = on_own_stream(context, set),
    }
}

/// Checks a block that the program freed; all its earlier work must be ordered before our stream.
/// `stack`: where it was allocated, if known.
#[cold]
pub fn look_behind(context: &'static Context, address: u64, bytes: u64, stack: StackId) {
    let mut zone = vec![ZONE; config::zone_bytes() as usize];
    let copy = |stream| {
        api::memcpy_dtoh_async(zone.as_mut_ptr() as usize, address + bytes, zone.len(), stream)
    };
    if on_own_stream(context, copy) != SUCCESS {
        return;
    }
    let Some(first) = zone.iter().position(|byte| *byte != ZONE) else { return };
    let count = zone.iter().filter(|byte| **byte != ZONE).count();
    let mut text = format!(
        "cachealloc: red zone: {count} bytes behind a block of {bytes} bytes at {address:#x} were \
         written, the first one {first} bytes behind its end\n"
    );
    if stack.is_none() {
        text += "  where it was allocated is not known: add record:state\n";
    }
    contents::with_names([stack], |names| {
        for frame in names.frames(stack).iter().take(FRAMES_SHOWN) {
            let _ = writeln!(text, "  {}  {}:{}", frame.name, frame.filename, frame.line);
        }
    });
    log::raw(text.as_bytes());
}

fn on_own_stream(
    context: &'static Context,
    mut work: impl FnMut(StreamHandle) -> CuResult,
) -> CuResult {
    let mut stream = lock(&context.contents_stream.0);
    api::relaxed(|| {
        context.enter(&mut || {
            if *stream == 0 {
                let mut made = 0;
                let code = api::stream_create(&mut made, STREAM_NON_BLOCKING);
                if code != SUCCESS {
                    return code;
                }
                *stream = made;
            }
            let code = work(*stream);
            code.max(api::stream_synchronize(*stream))
        })
    })
}
