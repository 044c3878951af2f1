//! [72] Copies that do not wait although their names do not say so, with managed memory on one
//! side.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::tools::*;
use crate::visible::results::filled;

pub const ALL: &[Hazard] = &[
    hazard!(Full, copy_to_managed, machine = "SIM_WORK_NS=15000000"),
    hazard!(Full, copy_from_managed, machine = "SIM_WORK_NS=15000000"),
];

type Copy = fn(&Driver, u64, u64) -> Outcome;

fn managed(d: &Driver) -> Outcome<u64> {
    let mut word = 0;
    call!(d, cuMemAllocManaged(&mut word, SMALL, 1))?;
    Ok(word)
}

/// Submits a copy that takes long, and frees an unrelated block. No kernel runs, since that would
/// be visible itself.
fn copy_late(d: &Driver, copy: Copy, to: u64, from: u64) -> Outcome {
    let unrelated = d.alloc(SMALL)?;
    d.synchronize()?;
    copy(d, to, from)?;
    d.free(unrelated)
}

fn copy_to_managed(d: &Driver) -> Verdict {
    let copies: [Copy; 2] = [
        |d, to, from| call!(d, cuMemcpy(to, from, SMALL)),
        |d, to, from| call!(d, cuMemcpyDtoH(to, from, SMALL)),
    ];
    let (source, mut good) = (filled(d, 7)?, true);
    for copy in copies {
        let word = managed(d)?;
        copy_late(d, copy, word, source)?;
        good &= d.host_read(word) == 7;
    }
    ok_if(good, "the host read before the work was done")
}

fn copy_from_managed(d: &Driver) -> Verdict {
    let copies: [Copy; 2] = [
        |d, to, from| call!(d, cuMemcpy(to, from, SMALL)),
        |d, to, from| call!(d, cuMemcpyHtoD(to, from, SMALL)),
    ];
    let (copied, mut good) = (d.alloc(SMALL)?, true);
    for copy in copies {
        let word = managed(d)?;
        d.host_write(word, 7);
        copy_late(d, copy, copied, word)?;
        d.host_write(word, 8);
        good &= holds(d, copied, 8, 7)?;
    }
    ok_if(good, "the copy saw what the host wrote later")
}
