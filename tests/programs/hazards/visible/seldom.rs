//! [1] [2] [41] Host memory that work reaches by calls that few programs make: launches with
//! parameters set before, copies over a fabric, decompression, tensor maps and texture references.

use cachealloc_tests::driver::{Driver, Outcome, Stream};

use crate::tools::*;
use crate::visible::results::{filled, look_after, page_of_host};
use crate::visible::sharing::semaphore;

/// One hazard for each call. Some need a newer driver than the others.
macro_rules! reached_by {
    ($($name:ident = $run:expr;)+) => {
        pub const ALL: &[Hazard] =
            &[$(hazard!(Full, $name, machine = "SIM_DRIVER_VERSION=13050"),)+];
        $(fn $name(d: &Driver) -> Verdict {
            let run: fn(&Driver) -> Verdict = $run;
            run(d)
        })+
    };
}

reached_by! {
    launch_of_one_block = |d| launched(d, |d, kernel, _| call_words(d, "cuLaunch", &[kernel]));
    launch_of_a_grid =
        |d| launched(d, |d, kernel, _| call_words(d, "cuLaunchGrid", &[kernel, 1, 1]));
    launch_of_a_grid_on_a_stream = |d| launched(d, |d, kernel, stream| {
        call_words(d, "cuLaunchGridAsync", &[kernel, 1, 1, stream])
    });
    launch_on_several_devices = cooperate;
    fabric_copy_to_pageable = |d| {
        let (source, page) = (filled(d, 7)?, page_of_host());
        look_after(d, |s| fabric_copy(d, s, page, source), || word_at(page) == 7)
    };
    fabric_copy_from_pageable = |d| {
        let (target, page) = (d.alloc(SMALL)?, page_of_host());
        set_word(page, 1);
        look_after(d, |s| fabric_copy(d, s, target, page), || true)?;
        set_word(page, 2);
        ok_if(holds(d, target, 8, 1)?, OVERWRITTEN)
    };
    decompressed_bytes_in_pinned = |d| {
        let (source, target, bytes) = (filled(d, 7)?, d.alloc(SMALL)?, d.pinned(4096)?);
        let one = place(&[SMALL as u64, SMALL as u64, bytes, source, target]);
        let submit = |s| call_words(d, "cuMemBatchDecompressAsync", &[one, 1, 0, out(), s]);
        look_after(d, submit, || d.host_read(bytes) as u32 == SMALL as u32)
    };
    signal_to_another_api = |d| {
        let (semaphore, block) = (semaphore(d)?, d.alloc(SMALL)?);
        let (list, value) = (place(&[semaphore]), place(&[5]));
        let submit = |s| {
            call_words(d, "cuSignalExternalSemaphoresAsync", &[list, value, 1, s])?;
            call_words(d, "cuWaitExternalSemaphoresAsync", &[list, value, 1, s])?;
            fill(d, s, block, 8, 7, 0)
        };
        look_after(d, submit, || d.host_read(block) == 7)
    };
    tile_of_a_tensor = |d| through_a_map(d, |d, map, at| {
        call_words(d, "cuTensorMapEncodeTiled", &[map, KIND, 1, at, out(), out(), out(), out()])
    });
    column_of_an_image = |d| through_a_map(d, |d, map, at| {
        call_words(d, "cuTensorMapEncodeIm2col", &[map, KIND, 3, at])
    });
    wide_column_of_an_image = |d| through_a_map(d, |d, map, at| {
        call_words(d, "cuTensorMapEncodeIm2colWide", &[map, KIND, 3, at])
    });
    tensor_at_another_address = |d| {
        let before = d.alloc(SMALL)?;
        let encode = |map| call_words(d, "cuTensorMapEncodeTiled", &[map, KIND, 1, before]);
        let map = aligned_map();
        encode(map)?;
        through(d, map, |host| call_words(d, "cuTensorMapReplaceAddress", &[map, host]))
    };
    texture_reference = |d| through_a_reference(d, |d, texture, at| {
        call_words(d, "cuTexRefSetAddress_v2", &[out(), texture, at, SMALL as u64])
    });
    texture_reference_of_rows = |d| through_a_reference(d, |d, texture, at| {
        call_words(d, "cuTexRefSetAddress2D_v3", &[texture, out(), at, 1024])
    });
    texture_reference_of_rows_by_its_older_name = |d| through_a_reference(d, |d, texture, at| {
        call_words(d, "cuTexRefSetAddress2D_v2", &[texture, out(), at, 1024])
    });
}

const OVERWRITTEN: &str = "the host overwrote memory still being read";
/// A kind of number in a tensor.
const KIND: u64 = 7;

/// A kernel writes to pinned memory, whose address earlier calls have set.
fn launched(d: &Driver, launch: fn(&Driver, u64, Stream) -> Outcome) -> Verdict {
    let (word, kernel) = (d.pinned(4096)?, d.kernel("late_fill")?);
    for (index, value) in [word, WORD, 7, LATE].into_iter().enumerate() {
        let offset = index as u64 * WORD;
        call_words(d, "cuParamSetv", &[kernel, offset, place(&[value]), WORD])?;
    }
    call_words(d, "cuParamSetSize", &[kernel, 4 * WORD])?;
    call_words(d, "cuFuncSetBlockShape", &[kernel, 1, 1, 1])?;
    look_after(d, |s| launch(d, kernel, s), || d.host_read(word) == 7)
}

fn cooperate(d: &Driver) -> Verdict {
    const ONE: u64 = 1 | 1 << 32;
    let (word, kernel) = (d.pinned(4096)?, d.kernel("late_fill")?);
    let arguments = place(&[word, WORD, 7, 0]);
    let list = place(&[arguments, arguments + 8, arguments + 16, arguments + 24]);
    let submit = |s| {
        let params = place(&[kernel, ONE, ONE, ONE, 0, s, list]);
        call_words(d, "cuLaunchCooperativeKernelMultiDevice", &[params, 1, 0])
    };
    look_after(d, submit, || d.host_read(word) == 7)
}

fn fabric_copy(d: &Driver, stream: Stream, to: u64, from: u64) -> Outcome {
    const POINTER: u64 = 1;
    let copy = place(&[POINTER, from, 0, POINTER, to, 0, 4096]);
    call_words(d, "cuFabricCpyBatchAsync", &[1, copy, 0, stream])
}

fn through_a_map(d: &Driver, encode: fn(&Driver, u64, u64) -> Outcome) -> Verdict {
    let map = aligned_map();
    through(d, map, |host| encode(d, map, host))
}

/// The host overwrites memory that a kernel reads through a tensor map.
fn through(d: &Driver, map: u64, encode: impl Fn(u64) -> Outcome) -> Verdict {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry fetch_tile(\
                .param .u64 a, .param .align 64 .b8 b[128], .param .u64 c)\n{ ret; }\n";
    let kernel = function(d, load_module(d, text)?, c"fetch_tile")?;
    overwritten(d, encode, |target| (kernel, vec![place(&[target]), map, out()]))
}

fn through_a_reference(d: &Driver, bind: fn(&Driver, u64, u64) -> Outcome) -> Verdict {
    let text = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .texref words;\n\
                .visible .entry fetch_bound(.param .u64 a, .param .u64 b)\n{ ret; }\n";
    let module = load_module(d, text)?;
    let kernel = function(d, module, c"fetch_bound")?;
    let name = c"words".as_ptr() as u64;
    let texture = made_by(d, "cuModuleGetTexRef", &[module, name])?;
    let bind = |host| bind(d, texture, host);
    overwritten(d, bind, |target| (kernel, vec![place(&[target]), out()]))
}

/// Launches a kernel that copies a word of host memory, which `name` has made known to it.
fn overwritten(
    d: &Driver,
    name: impl Fn(u64) -> Outcome,
    kernel: impl Fn(u64) -> (u64, Vec<u64>),
) -> Verdict {
    let (host, target) = (d.pinned(SMALL)?, d.alloc(SMALL)?);
    d.host_write(host, 1);
    name(host)?;
    let (kernel, arguments) = kernel(target);
    let list = place(&arguments);
    let submit = |s| call_words(d, "cuLaunchKernel", &[kernel, 1, 1, 1, 1, 1, 1, 0, s, list, 0]);
    look_after(d, submit, || true)?;
    d.host_write(host, 2);
    ok_if(holds(d, target, 8, 1)?, OVERWRITTEN)
}

fn function(d: &Driver, module: u64, name: &std::ffi::CStr) -> Outcome<u64> {
    made_by(d, "cuModuleGetFunction", &[module, name.as_ptr() as u64])
}

/// Returns memory for a tensor map.
fn aligned_map() -> u64 {
    out().next_multiple_of(64)
}

fn word_at(address: u64) -> u64 {
    // SAFETY: a page of the program's own.
    unsafe { (address as *const u64).read_volatile() }
}

fn set_word(address: u64, value: u64) {
    // SAFETY: as above.
    unsafe { (address as *mut u64).write_volatile(value) }
}
