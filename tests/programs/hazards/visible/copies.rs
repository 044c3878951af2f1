//! [72] Copies that do not wait although their names do not say so, with managed memory on one
//! side.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::tools::*;
use crate::visible::results::filled;

pub const ALL: &[Hazard] = &[
    hazard!(Full, copy_to_managed, machine = "SIM_WORK_NS=15000000"),
    hazard!(Full, copy_from_managed, machine = "SIM_WORK_NS=15000000"),
    hazard!(Full, copy_of_an_array_to_managed, machine = "SIM_WORK_NS=15000000"),
    hazard!(Full, copy_to_virtual_memory_of_the_host, machine = "SIM_WORK_NS=15000000"),
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

/// The copy names managed memory as memory of the host.
fn copy_of_an_array_to_managed(d: &Driver) -> Verdict {
    const ARRAY: u64 = 3;
    const HOST: u64 = 1;
    const ROW: u64 = 4096;
    let copies: [Copy; 2] = [
        |d, to, from| {
            let (from, to) = ([0, 0, ARRAY, 0, 0, from, 0], [0, 0, HOST, to, 0, 0, ROW]);
            call_words(d, "cuMemcpy2D_v2", &[place(&[&from[..], &to, &[ROW, 1]].concat())])
        },
        |d, to, from| {
            let from = [0, 0, 0, 0, ARRAY, 0, 0, from, 0, 0, 0];
            let to = [0, 0, 0, 0, HOST, to, 0, 0, 0, ROW, 1];
            call_words(d, "cuMemcpy3D_v2", &[place(&[&from[..], &to, &[ROW, 1, 1]].concat())])
        },
    ];
    // CUDA_ARRAY_DESCRIPTOR: one row of bytes.
    let array = made_by(d, "cuArrayCreate_v2", &[place(&[ROW, 1, 1 | 1 << 32])])?;
    let (row, mut good) = (place(&[7; ROW as usize / 8]), true);
    call_words(d, "cuMemcpyHtoA_v2", &[array, 0, row, ROW])?;
    for copy in copies {
        let word = managed(d)?;
        copy_late(d, copy, word, array)?;
        good &= d.host_read(word) == 7;
    }
    ok_if(good, "the host read before the work was done")
}

fn copy_to_virtual_memory_of_the_host(d: &Driver) -> Verdict {
    const BYTES: u64 = 2 << 20;
    const HOST: u64 = 2;
    const DEVICE: u64 = 1;
    const PINNED: u64 = 1;
    let memory = made_by(d, "cuMemCreate", &[BYTES, place(&[PINNED, HOST]), 0])?;
    let word = made_by(d, "cuMemAddressReserve", &[BYTES, 0, 0, 0])?;
    call_words(d, "cuMemMap", &[word, BYTES, 0, memory, 0])?;
    for side in [DEVICE, HOST] {
        const READ_WRITE: u64 = 3;
        call_words(d, "cuMemSetAccess", &[word, BYTES, place(&[side, READ_WRITE]), 1])?;
    }
    let source = filled(d, 7)?;
    copy_late(d, |d, to, from| call!(d, cuMemcpyDtoH(to, from, SMALL)), word, source)?;
    ok_if(d.host_read(word) == 7, "the host read before the work was done")
}
