//! [75] One stream is all there is, and then it is not.

use cachealloc_tests::driver::{Driver, Outcome, Stream};

use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, stream_with_the_handle_of_another),
    hazard!(Always, several_streams_then_one),
    hazard!(Full, free_orders_a_copy_behind_one_stream),
];

/// What is new under the handle is another stream: it comes behind nothing of the one before.
fn stream_with_the_handle_of_another(d: &Driver) -> Verdict {
    let mut good = true;
    for value in 2..6 {
        let (a, first) = (d.stream()?, d.alloc(BYTES)?);
        fill(d, a, first, BYTES, 1, LATE)?;
        d.free(first)?;
        d.destroy_stream(a)?;
        let (second, b) = (d.alloc(BYTES)?, under_handle(d, a)?);
        fill(d, b, second, BYTES, value, 0)?;
        good &= holds(d, second, BYTES, value)?;
        d.free(second)?;
    }
    ok_if(good, "the old kernel wrote into the new block")
}

/// A new stream, under this handle if the driver gives it out again soon.
fn under_handle(d: &Driver, handle: Stream) -> Outcome<Stream> {
    let mut stream = d.stream()?;
    for _ in 0..16 {
        if stream == handle {
            break;
        }
        stream = d.stream()?;
    }
    Ok(stream)
}

/// The streams are forgotten behind a barrier, and one of them is all there is; then comes another.
fn several_streams_then_one(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let mut good = true;
    for value in 2..6 {
        let (on_a, on_b) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
        fill(d, b, on_b, SMALL, 1, 0)?;
        fill(d, a, on_a, SMALL, 1, 0)?;
        d.free(on_a)?;
        d.free(on_b)?;
        let first = d.alloc(BYTES)?;
        fill(d, a, first, BYTES, 1, LATE)?;
        d.free(first)?;
        let second = d.alloc(BYTES)?;
        fill(d, b, second, BYTES, value, 0)?;
        good &= holds(d, second, BYTES, value)?;
        d.free(second)?;
    }
    ok_if(good, "the old kernel wrote into the new block")
}

/// The free is all the order there is between a kernel and a copy of what it writes.
fn free_orders_a_copy_behind_one_stream(d: &Driver) -> Verdict {
    let (a, b) = (d.stream()?, d.stream()?);
    let (data, result) = (d.alloc(BYTES)?, d.alloc(BYTES)?);
    for value in 2..6 {
        let temporary = d.alloc(SMALL)?;
        fill(d, a, data, BYTES, value, LATE)?;
        d.free(temporary)?;
        // Nothing new: this free makes no barrier of its own.
        let temporary = d.alloc(SMALL)?;
        d.free(temporary)?;
        copy(d, b, result, data, BYTES, 0)?;
        if !holds(d, result, BYTES, value)? {
            return ok_if(false, "the copy came first");
        }
    }
    ok_if(true, "")
}
