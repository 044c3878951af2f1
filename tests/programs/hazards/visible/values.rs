//! [67] Words in host memory for which streams wait, and which the host resets after a free.

use cachealloc_tests::driver::{Driver, Outcome, Stream};

use crate::tools::*;
use crate::visible::results::page_of_host;

pub const ALL: &[Hazard] = &[
    hazard!(Full, flag_lowered_behind_a_wait_for_it),
    hazard!(Full, registered_flag_lowered_behind_a_wait_for_it),
];

/// The host raises the flag, frees, and lowers the flag for the next round. On the plain driver the
/// free waits until the stream has seen the flag.
fn flag_lowered_behind_a_wait_for_it(d: &Driver) -> Verdict {
    let flag = d.pinned(4096)?;
    let waits_for_one: [fn(&Driver, Stream, u64) -> Outcome; 2] = [
        |d, stream, flag| call!(d, cuStreamWaitValue32(stream, flag, 1, 0)),
        |d, stream, flag| call!(d, cuStreamWaitValue64(stream, flag, 1, 0)),
    ];
    waits_for_one.into_iter().try_for_each(|wait| round(d, flag, wait))?;
    Ok("ok".into())
}

fn registered_flag_lowered_behind_a_wait_for_it(d: &Driver) -> Verdict {
    let page = page_of_host();
    call!(d, cuMemHostRegister(page, 4096, 0))?;
    // The address lies in the middle of the memory, not at its start.
    round(d, page + 2048, |d, s, flag| call!(d, cuStreamWaitValue32(s, flag, 1, 0)))?;
    Ok("ok".into())
}

fn round(d: &Driver, flag: u64, wait: fn(&Driver, Stream, u64) -> Outcome) -> Outcome {
    let (stream, unrelated) = (d.stream()?, d.alloc(SMALL)?);
    d.set_flag(flag, 0);
    d.launch("delay", stream, &[LATE])?;
    wait(d, stream, flag)?;
    d.set_flag(flag, 1);
    d.free(unrelated)?;
    d.set_flag(flag, 0);
    d.synchronize_stream(stream)
}
