//! [68] Green contexts: parts of a device with streams of their own, and the memory of the primary context.
//! On a GPU a part of the device would have to be named.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::stream_ordered::read_in_order;
use crate::tools::*;

pub const ALL: &[Hazard] = &[hazard!(Always, wait_for_a_stream_of_a_waiting_green_context)];

fn green(d: &Driver) -> Outcome<u64> {
    let mut green = 0;
    call!(d, cuGreenCtxCreate(&mut green, 0, 0, 1))?;
    Ok(green)
}

/// As `wait_for_a_stream_of_a_waiting_context`.
fn wait_for_a_stream_of_a_waiting_green_context(d: &Driver) -> Verdict {
    let (reader, done, green, mut stream) = (d.stream()?, d.event()?, green(d)?, 0);
    call!(d, cuGreenCtxStreamCreate(&mut stream, green, 1, 0))?;
    let green_waits = || {
        d.record(done, reader)?;
        call!(d, cuGreenCtxWaitEvent(green, done))
    };
    let read = read_in_order(d, reader, stream, green_waits, || d.synchronize_stream(stream))?;
    ok_if(read, "the copy saw what the host wrote later")
}
