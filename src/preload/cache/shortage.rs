//! Memory ran out: what the user sees before the program sees the error.

use std::sync::atomic::{AtomicU32, Ordering};

use cachealloc_history::StackId;

use crate::contexts::Context;
use crate::driver::api;
use crate::snapshots::triggers;
use crate::{filter, log, record};

/// Some programs measure free memory by failed requests.
const REPORTS_MAX: u32 = 3;

/// The largest number that viewers represent exactly: a program may request anything.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// A request of this size is about to fail. Call without any lock of ours.
#[cold]
pub(crate) fn happened(context: &'static Context, bytes: u64, stack: StackId) {
    static REPORTS: AtomicU32 = AtomicU32::new(0);
    context.ooms_count.fetch_add(1, Ordering::Relaxed);
    // If this fails, the context is lost, which later calls will report.
    let Ok((free, total)) = api::relaxed(|| context.enter(api::mem_get_info)) else { return };
    {
        let _in_order = crate::lock::lock(&context.allocator);
        context.recorder.out_of_memory(bytes.min(EXACT_MAX), free as u64, stack);
    }
    if filter::silences() {
        return;
    }
    if REPORTS.fetch_add(1, Ordering::Relaxed) < REPORTS_MAX && log::warns() {
        let text = triggers::shortage_text(context, bytes, free as u64, total as u64);
        log::raw(text.as_bytes());
    }
    if record::is_on() {
        triggers::at_shortage();
    }
}
