//! Giving segments back to the driver (DESIGN 3.7).
//!
//! A real `cuMemFree` waits for the context and holds it meanwhile, and `cudaMalloc` natively does
//! not wait: so a segment goes back by `cuMemFreeAsync` on a stream of ours, behind the last
//! barrier and behind the events of its blocks' tags. Whoever needs the memory now waits for that
//! stream only. The real free is the last resort, and counted.

use std::sync::Mutex;

use cachealloc_core::Segment;

use crate::driver::api;
use crate::driver::sys::{CuResult, STREAM_NON_BLOCKING, SUCCESS, StreamHandle};
use crate::driver::table;
use crate::functions::id;
use crate::runtime::contexts::{self, Context};
use crate::runtime::stats::{self, Count, Wait};
use crate::runtime::{extents, lock, tags};

/// The stream on which memory goes back; 0 before its first use.
pub struct ReleaseStream(Mutex<StreamHandle>);

impl ReleaseStream {
    pub const fn new() -> ReleaseStream {
        ReleaseStream(Mutex::new(0))
    }
}

/// Gives back segments that have left the allocator. `wait`: return when their memory is there.
/// The code is that of work that failed meanwhile; the segments are gone either way.
pub fn segments(context: &'static Context, segments: &[Segment], wait: bool) -> CuResult {
    if segments.is_empty() {
        return SUCCESS;
    }
    // Before the driver has them: afterwards the same addresses may be another owner's.
    segments.iter().for_each(|segment| extents::remove(segment.base.0));
    stats::add(Count::SegmentsReleased, segments.len() as u64);
    api::relaxed(|| {
        context.enter(&mut || match stream(context) {
            Some(stream) => behind_barrier(context, segments, stream, wait),
            None => by_waiting(segments),
        })
    })
}

/// Every wholly free segment of every context on this device (`None`: on every device) leaves
/// the cache.
pub fn everything_free(device: Option<i32>, wait: bool) -> CuResult {
    let mut code = SUCCESS;
    let concerned = |context: &&Context| device.is_none_or(|device| context.device == device);
    for context in contexts::all().filter(concerned) {
        tags::query(context);
        super::alloc::empty_lookaside(context);
        let free = lock(&context.allocator).release_free();
        if free.is_empty() {
            continue;
        }
        let released = segments(context, &free, wait);
        code = if code == SUCCESS { released } else { code };
    }
    code
}

/// Gives one empty segment back by the real, waiting free. False: there is none.
pub fn one_by_waiting(context: &'static Context) -> bool {
    let mut free = lock(&context.allocator).release_free();
    let any = !free.is_empty();
    if any {
        let rest = free.split_off(1);
        free.iter().for_each(|segment| extents::remove(segment.base.0));
        by_waiting(&free);
        segments(context, &rest, false);
    }
    any
}

fn behind_barrier(
    context: &'static Context,
    segments: &[Segment],
    stream: StreamHandle,
    wait: bool,
) -> CuResult {
    if let Some(event) = context.last_barrier.newest() {
        api::stream_wait_event(stream, event.handle(), 0);
    }
    for segment in segments {
        for event in tags::events(context, &segment.events) {
            api::stream_wait_event(stream, event.handle(), 0);
        }
        if api::mem_free_async(segment.base.0, stream) != SUCCESS {
            by_waiting(core::slice::from_ref(segment));
        }
    }
    if wait { stats::timed(Wait::Release, || api::stream_synchronize(stream)) } else { SUCCESS }
}

fn by_waiting(segments: &[Segment]) -> CuResult {
    let mut code = SUCCESS;
    for segment in segments {
        code = stats::timed(Wait::RealFree, || api::mem_free(segment.base.0));
    }
    code
}

/// Made at first use, and only where the driver can free in stream order (11.2 and later).
fn stream(context: &Context) -> Option<StreamHandle> {
    let mut stream = lock(&context.release_stream.0);
    if *stream == 0 && table::has(id::cuMemFreeAsync) {
        let mut made = 0;
        if api::stream_create(&mut made, STREAM_NON_BLOCKING) == SUCCESS {
            *stream = made;
        }
    }
    (*stream != 0).then_some(*stream)
}
