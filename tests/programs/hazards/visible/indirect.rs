//! [1] [28] [71] Host memory that a kernel reaches by an address no argument shows.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::tools::*;
use crate::visible::results::look_after;

pub const ALL: &[Hazard] = &[
    hazard!(Full, mapped_write),
    hazard!(Full, device_pointer_write),
    hazard!(Full, write_by_another_address, machine = "SIM_DISJOINT=1"),
    hazard!(Full, write_by_another_address_among_others, machine = "SIM_DISJOINT=1"),
    hazard!(Full, managed_variable),
    hazard!(Full, managed_variable_of_a_library),
    hazard!(Full, pinned_argument_then_copied_data),
    hazard!(StrictOnly, pinned_in_copied_data),
];

/// `DEVICEMAP`: the program declares that kernels will write there.
fn mapped_write(d: &Driver) -> Verdict {
    const DEVICE_MAP: u32 = 2;
    let mut word = 0;
    call!(d, cuMemHostAlloc(&mut word, 4096, DEVICE_MAP))?;
    write_by_table(d, word)
}

fn device_pointer_write(d: &Driver) -> Verdict {
    let (host, mut device) = (d.pinned(4096)?, 0);
    call!(d, cuMemHostGetDevicePointer(&mut device, host, 0))?;
    write_by_table(d, device)
}

/// The device accesses the memory at another address, which a query returns as well.
fn write_by_another_address(d: &Driver) -> Verdict {
    let (host, mut device) = (d.pinned(4096)?, 0);
    call!(d, cuPointerGetAttribute(&mut device, DEVICE_POINTER, host + 8))?;
    look_after(d, |s| fill(d, s, device, 8, 7, 0), || d.host_read(host + 8) == 7)
}

/// The query has the form that the runtime uses for `cudaPointerGetAttributes`.
fn write_by_another_address_among_others(d: &Driver) -> Verdict {
    const MEMORY_TYPE: u32 = 2;
    let (host, mut kind, mut device) = (d.pinned(4096)?, 0_u64, 0_u64);
    let (kinds, places) = ([MEMORY_TYPE, DEVICE_POINTER], [&raw mut kind, &raw mut device]);
    let (kinds, places) = (kinds.as_ptr().cast(), places.as_ptr().cast());
    call!(d, cuPointerGetAttributes(2, kinds, places, host))?;
    look_after(d, |s| fill(d, s, device, 8, 7, 0), || d.host_read(host) == 7)
}

const DEVICE_POINTER: u32 = 3;

const MANAGED: &str = ".version 7.0\n.target sm_70\n.address_size 64\n\
                       .visible .global .attribute(.managed) .align 8 .u64 shared_word;\n\0";

/// As for a module, by the function that finds only such variables.
fn managed_variable_of_a_library(d: &Driver) -> Verdict {
    let text = MANAGED.as_ptr() as u64;
    let library = made_by(d, "cuLibraryLoadData", &[text, 0, 0, 0, 0, 0, 0])?;
    let name = c"shared_word".as_ptr() as u64;
    let word = made_by(d, "cuLibraryGetManaged", &[out(), library, name])?;
    write_by_table(d, word)
}

/// Both sides access the variable by its name; no call allocated it.
fn managed_variable(d: &Driver) -> Verdict {
    let module = load_module(d, MANAGED.trim_end_matches('\0'))?;
    let word = global(d, module, c"shared_word")?;
    write_by_table(d, word)
}

/// After a kernel was passed pinned memory, any later kernel may know the address.
fn pinned_argument_then_copied_data(d: &Driver) -> Verdict {
    let (stream, word) = (d.stream()?, d.pinned(4096)?);
    fill(d, stream, word, 8, 1, 0)?;
    d.synchronize()?;
    write_by_table(d, word)
}

/// Only the mode `strict`, which always waits, handles this program.
fn pinned_in_copied_data(d: &Driver) -> Verdict {
    let word = d.pinned(4096)?;
    write_by_table(d, word)
}

/// The kernel gets the address only through device memory.
fn write_by_table(d: &Driver, word: u64) -> Verdict {
    let table = d.alloc(SMALL)?;
    d.write_words(table, &[word, WORD, 7])?;
    // The work for which the copy made the free wait is complete.
    free_something(d)?;
    look_after(d, |s| d.launch("indirect_fill", s, &[table, 0]), || d.host_read(word) == 7)
}

pub fn free_something(d: &Driver) -> Outcome {
    let block = d.alloc(SMALL)?;
    d.free(block)
}
