//! Streams that use a block besides the one that frees it: the program reports them
//! (`cachealloc_record_stream`). Only a stream-ordered free needs them: any other free covers every
//! stream.

use core::ffi::c_int;

use crate::contexts::lookup;
use crate::driver::api;
use crate::driver::sys::StreamHandle;
use crate::ordering::captures;
use crate::pagemap;
use crate::pagemap::Place;

/// Notes that this stream uses the block at this address. Returns 0 or an `errno`.
pub(crate) fn note_use(address: u64, stream: StreamHandle) -> c_int {
    let block = match pagemap::place(address) {
        Place::Block(block) => block,
        Place::Inside => return libc::EINVAL,
        Place::Elsewhere => return 0,
    };
    if captures::maybe() && captures::is_capturing(stream) {
        return libc::ENOTSUP;
    }
    let Ok(handle) = api::stream_get_ctx(stream) else { return libc::EINVAL };
    match lookup::of_handle(handle) {
        Ok(context) if core::ptr::eq(context, block.context()) => block.note_other_stream(),
        _ => return libc::ENOTSUP,
    }
    0
}
