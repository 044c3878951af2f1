//! Calls that fail or request nothing: the driver's codes, and the state of the outputs.

use std::ptr::null_mut;

use cachealloc_tests::driver::{Driver, Outcome};

use crate::tools::*;

const MIB: usize = 1 << 20;

pub fn sizes(d: &Driver) -> Outcome {
    let stream = stream(d)?;
    let huge = [1 << 40, 1 << 48, 1 << 60, 1 << 63, usize::MAX - 511, usize::MAX];
    for bytes in [0].into_iter().chain(huge) {
        let (mut plain, mut ordered) = (UNTOUCHED, UNTOUCHED);
        let plainly = code!(d, cuMemAlloc(&mut plain, bytes));
        let on_stream = code!(d, cuMemAllocAsync(&mut ordered, bytes, stream));
        println!(
            "size {bytes:#x}: {plainly} {}, async {on_stream} {}",
            shown(plain, 0, 0),
            shown(ordered, 0, 0)
        );
        println!("  afterwards {}", code_of(d.free(d.alloc(4096)?)));
    }
    for bytes in [0, 4096] {
        let plainly = code!(d, cuMemAlloc(null_mut(), bytes));
        let on_stream = code!(d, cuMemAllocAsync(null_mut(), bytes, stream));
        println!("null output, size {bytes}: {plainly} {on_stream}");
    }
    Ok(())
}

pub fn frees(d: &Driver) -> Outcome {
    let on_stack = 0_u64;
    let stream = stream(d)?;
    let wild = [0, 8, 0x1234_5000, (&raw const on_stack) as u64, 1 << 48, u64::MAX];
    let plainly = wild.map(|address| code_of(d.free(address)));
    let on_stream = wild.map(|address| code_of(d.free_async(address, stream)));
    println!("wild frees {plainly:?}, async {on_stream:?}");
    for bytes in [1, 512, 1000, MIB, 3 * MIB, 33 * MIB] {
        let (block, neighbour) = (d.alloc(bytes)?, d.alloc(bytes)?);
        d.memset(neighbour, 0x5A, bytes, 0)?;
        let inside = [1, bytes as u64 / 2, bytes as u64 - 1, bytes as u64 + 1];
        let inside = inside.map(|offset| {
            // Half of one byte rounds to the start of the block.
            let address =
                if offset < bytes as u64 { block + offset.max(1) } else { block + offset };
            (code_of(d.free(address)), code_of(d.free_async(address, stream)))
        });
        let again = [d.free(block), d.free(block), d.free_async(block, stream)].map(code_of);
        let kept =
            d.read_words(neighbour, bytes / 8)?.iter().all(|word| *word == 0x5A5A_5A5A_5A5A_5A5A);
        println!("{bytes}: inside {inside:?}, free twice {again:?}, neighbour kept {kept}");
        d.free(neighbour)?;
    }
    Ok(())
}

pub fn frees_of_stream_ordered(d: &Driver) -> Outcome {
    let stream = stream(d)?;
    for bytes in [1, 1000, 3 * MIB] {
        for (first, name) in [(true, "async"), (false, "plain")] {
            let block = d.alloc_async(bytes, stream)?;
            let inside = [d.free(block + 1), d.free_async(block + 1, stream)].map(code_of);
            let freed = if first { d.free_async(block, stream) } else { d.free(block) };
            let again = [d.free_async(block, stream), d.free(block)].map(code_of);
            println!(
                "{bytes} async, {name} free: inside {inside:?}, {}, {again:?}",
                code_of(freed)
            );
        }
    }
    d.synchronize()
}

/// Memory in the cache counts as free; the program's blocks do not.
pub fn info(d: &Driver) -> Outcome {
    let (at_start, total_at_start) = d.memory_info()?;
    let (mut free, mut total) = (usize::MAX, usize::MAX);
    let codes = [
        code!(d, cuMemGetInfo(null_mut(), null_mut())),
        code!(d, cuMemGetInfo(&mut free, null_mut())),
        code!(d, cuMemGetInfo(null_mut(), &mut total)),
    ];
    println!("info with nulls {codes:?}, {} {}", free == at_start, total == total_at_start);
    let sizes = [40 * MIB, 22 * MIB, 64 * MIB, 2 * MIB];
    for round in 0..3 {
        let mut held = 0;
        for bytes in sizes {
            let block = d.alloc(bytes)?;
            held += bytes;
            let taken = at_start.saturating_sub(d.memory_info()?.0);
            println!("round {round}: {bytes} held, taken: {}", near(taken, bytes));
            d.free(block)?;
            let left = at_start.saturating_sub(d.memory_info()?.0);
            println!("  freed, taken: {}", near(left, 0));
        }
        println!("  in all {held}");
    }
    Ok(())
}

/// Whether the value is within the rounding of one segment.
fn near(bytes: usize, wanted: usize) -> String {
    let close = bytes.abs_diff(wanted) <= 22 * MIB;
    if close { "as natively".into() } else { format!("FAIL, {bytes}, not {wanted}") }
}

/// The last group: no context is current while it runs.
pub fn without_context(d: &Driver) -> Outcome {
    let (context, block) = (d.context(), d.alloc(4096)?);
    let stream = stream(d)?;
    let ordered = d.alloc_async(4096, stream)?;
    d.set_context(0)?;
    let mut pointer = UNTOUCHED;
    let allocated = code!(d, cuMemAlloc(&mut pointer, 4096));
    println!("no context: alloc {allocated} {}", shown(pointer, 0, 0));
    println!("  of size 0 {}", code!(d, cuMemAlloc(&mut pointer, 0)));
    println!("  into null {}", code!(d, cuMemAlloc(null_mut(), 4096)));
    pointer = UNTOUCHED;
    let allocated = code!(d, cuMemAllocAsync(&mut pointer, 4096, 0));
    println!("  async {allocated} {}", shown(pointer, 0, 0));
    let (mut free, mut total) = (UNTOUCHED as usize, UNTOUCHED as usize);
    let info = code!(d, cuMemGetInfo(&mut free, &mut total));
    println!("  info {info} {} {}", shown(free as u64, 0, 0), shown(total as u64, 0, 0));
    let (mut base, mut bytes) = (UNTOUCHED, UNTOUCHED as usize);
    let range = code!(d, cuMemGetAddressRange(&mut base, &mut bytes, block));
    println!("  range {range} {} {}", shown(base, block, 4096), shown(bytes as u64, 0, 0));
    let mut kind = UNTOUCHED;
    let asked = code!(d, cuPointerGetAttribute(&mut kind, 2, block));
    println!("  memory type {asked} {}", shown(kind, 0, 0));
    let wrong = [d.free(block + 1), d.free(8), d.free(0)].map(code_of);
    let right = [d.free(block), d.free(block)].map(code_of);
    println!("  wrong frees {wrong:?}, frees {right:?}");
    println!("  async free on stream 0 {}", code_of(d.free_async(ordered, 0)));
    d.set_context(context)?;
    println!("  back: {}", code_of(d.free(d.alloc(4096)?)));
    println!("  async free {}", code_of(d.free_async(ordered, stream)));
    d.synchronize()
}

pub fn stream(d: &Driver) -> Outcome<u64> {
    let mut stream = 0;
    cachealloc_tests::driver::check(code!(d, cuStreamCreate(&mut stream, 1)))?;
    Ok(stream)
}
