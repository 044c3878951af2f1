//! Random live blocks, and random addresses in and around them.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::calls::stream;
use crate::tools::*;

const OPS: u64 = 400;
const LIVE_MAX: usize = 24;
const SIZES: [u64; 6] = [512, 4096, 60_000, 1 << 20, 3 << 20, 12 << 20];
const ALIGNMENT: u64 = 512;

struct Block {
    base: u64,
    bytes: usize,
    ordered: bool,
}

pub fn random(d: &Driver, seed: u64) -> Outcome {
    println!("seed {seed}");
    let (mut random, stream) = (Random(seed), stream(d)?);
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..OPS {
        let choice = random.below(8);
        if blocks.is_empty() || (choice < 3 && blocks.len() < LIVE_MAX) {
            let end = SIZES[random.below(SIZES.len() as u64) as usize];
            let bytes = 1 + random.below(end) as usize;
            let ordered = random.below(4) == 0;
            let base = if ordered { d.alloc_async(bytes, stream)? } else { d.alloc(bytes)? };
            // On the plain driver larger blocks start at whole pages; the promised alignment is 512
            // bytes.
            println!("block of {bytes}, ordered {ordered}, at {}", base % ALIGNMENT);
            blocks.push(Block { base, bytes, ordered });
            continue;
        }
        let index = random.below(blocks.len() as u64) as usize;
        if choice < 5 {
            let Block { base, bytes, ordered } = blocks.swap_remove(index);
            match random.below(3) {
                0 => d.free(base)?,
                _ if ordered => d.free_async(base, stream)?,
                _ => d.free(base)?,
            }
            // Waits for the free to complete: before that, the result of a query depends on timing.
            d.synchronize()?;
            println!(
                "  freed {bytes}: {}",
                asked(d, base + random.below(bytes as u64), base, bytes)
            );
            continue;
        }
        let block = &blocks[index];
        let offset = match random.below(4) {
            0 => 0,
            1 => block.bytes as u64 - 1,
            _ => random.below(block.bytes as u64),
        };
        let answer = asked(d, block.base + offset, block.base, block.bytes);
        println!("  {} at {offset}: {answer}", block.bytes);
        // The address past the end belongs to no block, unless an adjacent block begins there.
        let behind = block.base + block.bytes as u64;
        if !blocks.iter().any(|other| other.base == behind) {
            println!("    behind: {}", asked(d, behind, block.base, block.bytes));
        }
    }
    for Block { base, .. } in blocks {
        d.free(base)?;
    }
    d.synchronize()
}

/// Queries the range by every call, with all outputs or one of them.
fn asked(d: &Driver, address: u64, base: u64, bytes: usize) -> String {
    let (mut start, mut length) = (UNTOUCHED, UNTOUCHED as usize);
    let both = code!(d, cuMemGetAddressRange(&mut start, &mut length, address));
    let mut said = format!("{both} {} {}", shown(start, base, bytes), shown(length as u64, 0, 0));
    let (mut start, mut length) = (UNTOUCHED, UNTOUCHED as usize);
    let nothing = std::ptr::null_mut();
    let first = code!(d, cuMemGetAddressRange(&mut start, nothing, address));
    let second = code!(d, cuMemGetAddressRange(std::ptr::null_mut(), &mut length, address));
    let none = code!(d, cuMemGetAddressRange(std::ptr::null_mut(), nothing, address));
    said += &format!(
        ", {first} {}, {second} {}, {none}",
        shown(start, base, bytes),
        shown(length as u64, 0, 0)
    );
    for attribute in [11, 12, 6, 10, 3, 2] {
        let mut value = UNTOUCHED;
        let code = code!(d, cuPointerGetAttribute(&mut value, attribute, address));
        said += &format!(", {attribute}:{code} {}", shown(value, base, bytes));
    }
    said
}
