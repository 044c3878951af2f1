//! [41] Host memory that work accesses in unusual ways: from its end, from a base before it, from
//! an odd offset in the arguments, through a texture, at an offset, or in a batch.

use std::ffi::c_void;

use cachealloc_tests::driver::{Driver, Outcome, Stream};

use crate::order::teardown::texture;
use crate::tools::*;
use crate::visible::results::{filled, look_after, page_of_host};

pub const ALL: &[Hazard] = &[
    hazard!(Full, pinned_by_its_end),
    hazard!(Full, registered_by_its_end),
    hazard!(Full, pinned_by_a_base_before_it),
    hazard!(Full, pinned_in_a_packed_struct),
    hazard!(Full, pinned_at_an_odd_place_of_packed_arguments),
    hazard!(Full, pinned_behind_many_argument_bytes),
    hazard!(Full, pinned_behind_a_texture),
    hazard!(Full, copy_2d_to_pinned_at_an_offset),
    hazard!(Full, batch_to_pageable),
    hazard!(Full, batch_from_pageable),
];

/// Kernels that access memory in such ways.
struct Reach<'a> {
    d: &'a Driver,
    module: u64,
}

impl Reach<'_> {
    fn load(d: &Driver) -> Outcome<Reach<'_>> {
        Ok(Reach { d, module: load_module(d, include_str!("../../reach.ptx"))? })
    }

    fn launch(&self, name: &std::ffi::CStr, stream: Stream, places: &[*const c_void]) -> Outcome {
        let (mut kernel, extra) = (0, std::ptr::null());
        call!(self.d, cuModuleGetFunction(&mut kernel, self.module, name.as_ptr().cast()))?;
        let places = places.as_ptr().cast();
        call!(self.d, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, places, extra))
    }

    /// Writes 7 at a base and an offset.
    fn fill_at(&self, stream: Stream, base: u64, offset: i64) -> Outcome {
        let words = [base, offset as u64, 7, 0];
        let places = words.each_ref().map(|word| (word as *const u64).cast());
        self.launch(c"fill_at", stream, &places)
    }
}

/// The kernel gets the end of the memory, like a reverse iterator: the last word is one before it.
fn pinned_by_its_end(d: &Driver) -> Verdict {
    let (reach, words) = (Reach::load(d)?, d.pinned(4096)?);
    let submit = |s| reach.fill_at(s, words + 4096, -8);
    look_after(d, submit, || d.host_read(words + 4088) == 7)
}

fn registered_by_its_end(d: &Driver) -> Verdict {
    let (reach, page) = (Reach::load(d)?, page_of_host());
    call!(d, cuMemHostRegister(page, 4096, 0))?;
    look_after(d, |s| reach.fill_at(s, page + 4096, -8), || d.host_read(page + 4088) == 7)
}

/// The kernel gets a base before the memory, like an array whose first element has number one.
fn pinned_by_a_base_before_it(d: &Driver) -> Verdict {
    let (reach, words) = (Reach::load(d)?, d.pinned(4096)?);
    look_after(d, |s| reach.fill_at(s, words - 8, 8), || d.host_read(words) == 7)
}

fn pinned_in_a_packed_struct(d: &Driver) -> Verdict {
    let (reach, word) = (Reach::load(d)?, d.pinned(4096)?);
    let mut packed = [0_u8; 9];
    packed[1..].copy_from_slice(&word.to_le_bytes());
    let rest = [7_u64, 0];
    let submit = |s| {
        let places =
            [packed.as_ptr().cast(), (&raw const rest[0]).cast(), (&raw const rest[1]).cast()];
        reach.launch(c"fill_packed", s, &places)
    };
    look_after(d, submit, || d.host_read(word) == 7)
}

/// All arguments lie in one block of the program, and the first one is such a struct.
fn pinned_at_an_odd_place_of_packed_arguments(d: &Driver) -> Verdict {
    let (reach, word) = (Reach::load(d)?, d.pinned(4096)?);
    let mut kernel = 0;
    call!(d, cuModuleGetFunction(&mut kernel, reach.module, c"fill_packed".as_ptr().cast()))?;
    let mut block = [0_u8; 32];
    block[1..9].copy_from_slice(&word.to_le_bytes());
    block[16] = 7;
    let bytes = size_of_val(&block);
    let extra = [1_usize, block.as_ptr() as usize, 2, (&raw const bytes) as usize, 0];
    let launch = |stream| {
        let (none, extra) = (std::ptr::null(), extra.as_ptr().cast());
        call!(d, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, none, extra))
    };
    look_after(d, launch, || d.host_read(word) == 7)
}

/// The arguments are as long as those of kernels that work on many tensors at once. The words
/// before the address resemble it.
fn pinned_behind_many_argument_bytes(d: &Driver) -> Verdict {
    let (reach, word) = (Reach::load(d)?, d.pinned(4096)?);
    let mut table = [word & !0xffff_ffff; 510];
    table[509] = word;
    let rest = [7_u64, 0];
    let submit = |s| {
        let places =
            [table.as_ptr().cast(), (&raw const rest[0]).cast(), (&raw const rest[1]).cast()];
        reach.launch(c"fill_in_table", s, &places)
    };
    look_after(d, submit, || d.host_read(word) == 7)
}

/// The host overwrites memory that the device still reads through a texture.
fn pinned_behind_a_texture(d: &Driver) -> Verdict {
    let (reach, host, target) = (Reach::load(d)?, d.pinned(SMALL)?, d.alloc(SMALL)?);
    d.host_write(host, 1);
    let texture = texture(d, host)?;
    let words = [target, texture, 0];
    let places = words.each_ref().map(|word| (word as *const u64).cast());
    look_after(d, |s| reach.launch(c"fetch", s, &places), || true)?;
    d.host_write(host, 2);
    ok_if(holds(d, target, 8, 1)?, "the host overwrote memory still being read")
}

/// The struct contains an address before the pinned memory; the copy begins three rows later.
fn copy_2d_to_pinned_at_an_offset(d: &Driver) -> Verdict {
    const BEFORE: u64 = 3;
    let (source, host) = (filled(d, 7)?, d.pinned(SMALL)?);
    let last = host + SMALL as u64 - WORD;
    let (pitch, rows) = (4096, SMALL as u64 / 4096);
    let from = [0, 0, 2, 0, source, 0, pitch];
    let to = [0, BEFORE, 1, host - BEFORE * pitch, 0, 0, pitch];
    let shape = [&from[..], &to, &[pitch, rows]].concat();
    let submit = |s| call!(d, cuMemcpy2DAsync(shape.as_ptr().cast(), s));
    look_after(d, submit, || d.host_read(last) == 7)
}

/// Ordinary memory in a batch is not staged: the device writes it when the copy runs.
fn batch_to_pageable(d: &Driver) -> Verdict {
    let (source, page) = (filled(d, 7)?, page_of_host());
    look_after(d, |s| batch(d, s, page, source), || word_at(page) == 7)
}

fn batch_from_pageable(d: &Driver) -> Verdict {
    let (target, page) = (d.alloc(SMALL)?, page_of_host());
    set_word(page, 1);
    look_after(d, |s| batch(d, s, target, page), || true)?;
    set_word(page, 2);
    ok_if(holds(d, target, 8, 1)?, "the host overwrote memory still being read")
}

fn batch(d: &Driver, stream: Stream, to: u64, from: u64) -> Outcome {
    static BYTES: usize = 4096;
    // CUmemcpyAttributes: the source is read in the order of the stream.
    let (attributes, index, mut failed) = ([1_u32, 0, 0, 0, 0, 0], 0_usize, 0_usize);
    let lists = [&raw const to, &raw const from].map(|list| list.cast::<c_void>());
    let (bytes, first) = (&raw const BYTES, &raw const index);
    let attributes = attributes.as_ptr().cast();
    call!(
        d,
        cuMemcpyBatchAsync(
            lists[0],
            lists[1],
            bytes.cast(),
            1,
            attributes,
            first.cast(),
            1,
            &mut failed,
            stream
        )
    )
}

fn word_at(address: u64) -> u64 {
    // SAFETY: a page of the program's own.
    unsafe { (address as *const u64).read_volatile() }
}

fn set_word(address: u64, value: u64) {
    // SAFETY: as above.
    unsafe { (address as *mut u64).write_volatile(value) }
}
