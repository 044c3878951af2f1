//! Attributes of a pointer: every attribute, alone and in an array.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::calls::stream;
use crate::tools::*;

const CONTEXT: u32 = 1;
const P2P_TOKENS: u32 = 5;
pub const SYNC_MEMOPS: u32 = 6;
const BUFFER_ID: u32 = 7;
const POOL: u32 = 17;
const MAPPING_SIZE: u32 = 18;
const MAPPING_BASE: u32 = 19;
const MEMORY_BLOCK_ID: u32 = 20;
const LAST: u32 = 22;

/// Every kind of pointer, and invalid pointers.
pub fn of_every_kind(d: &Driver) -> Outcome {
    let stream = stream(d)?;
    let (small, large) = (d.alloc(1000)?, d.alloc(5 << 20)?);
    let (ordered, pinned) = (d.alloc_async(70_000, stream)?, d.pinned(4096)?);
    let (freed, freed_large) = (d.alloc(1000)?, d.alloc(5 << 20)?);
    let freed_ordered = d.alloc_async(70_000, stream)?;
    d.free(freed)?;
    d.free(freed_large)?;
    d.free_async(freed_ordered, stream)?;
    d.synchronize()?;
    let on_stack = 0_u64;
    let pointers = [
        ("small", small, 1000),
        ("large", large, 5 << 20),
        ("stream-ordered", ordered, 70_000),
        ("pinned", pinned, 4096),
    ];
    for (name, base, bytes) in pointers {
        for offset in [0, 1, bytes / 2, bytes - 1] {
            println!("{name} at {offset}: {}", described(d, base + offset as u64, base, bytes));
        }
    }
    let none = [
        ("past the end", small + 1000),
        ("past the large end", large + (5 << 20)),
        ("freed", freed),
        ("inside a freed one", freed + 500),
        ("freed, large", freed_large),
        ("on the stack", (&raw const on_stack) as u64),
        ("null", 0),
        ("wild", 0x1234_5000),
    ];
    for (name, address) in none {
        println!("{name}: {}", described(d, address, address, 0));
    }
    for block in [small, large] {
        d.free(block)?;
    }
    d.free_async(ordered, stream)?;
    d.free_pinned(pinned)?;
    d.synchronize()
}

fn described(d: &Driver, address: u64, base: u64, bytes: usize) -> String {
    let mut said = Vec::new();
    let kinds: Vec<u32> = (0..=LAST).filter(|kind| *kind != P2P_TOKENS).collect();
    for kind in &kinds {
        let mut value = UNTOUCHED;
        let code = code!(d, cuPointerGetAttribute(&mut value, *kind, address));
        let null = code!(d, cuPointerGetAttribute(std::ptr::null_mut(), *kind, address));
        said.push(format!("{kind}:{code}/{null} {}", name(*kind, value, base, bytes)));
    }
    // One invalid attribute makes the whole array fail: only existing ones are queried.
    let kinds: Vec<u32> = kinds.into_iter().filter(|kind| (1..=16).contains(kind)).collect();
    let mut values = vec![UNTOUCHED; kinds.len()];
    let places: Vec<*mut u64> = values.iter_mut().map(|value| value as *mut u64).collect();
    let (list, places) = (kinds.as_ptr().cast(), places.as_ptr().cast());
    let code = code!(d, cuPointerGetAttributes(kinds.len() as u32, list, places, address));
    let array = kinds.iter().zip(&values);
    let array: Vec<_> = array.map(|(kind, value)| name(*kind, *value, base, bytes)).collect();
    let nothing = std::ptr::null();
    let none = code!(d, cuPointerGetAttributes(0, list, places, address));
    let null = code!(d, cuPointerGetAttributes(1, nothing, nothing, address));
    format!("{}; array {code}: {}; {none} {null}", said.join(", "), array.join(" "))
}

/// Formats an attribute. Handles and numbers of the driver's own choice are only shown as present
/// or absent; a mapping may be larger than the block.
fn name(kind: u32, value: u64, base: u64, bytes: usize) -> String {
    let opaque = [CONTEXT, BUFFER_ID, POOL, MEMORY_BLOCK_ID].contains(&kind);
    match kind {
        _ if value == UNTOUCHED || value == 0 => shown(value, 0, 0),
        MAPPING_SIZE => format!("covers {}", value >= bytes as u64),
        MAPPING_BASE => format!("covers {}", value <= base),
        _ if opaque => "some".into(),
        _ => shown(value, base, bytes),
    }
}

/// Each large allocation is a mapping of its own.
pub fn mappings(d: &Driver) -> Outcome {
    const BYTES: usize = 4 << 20;
    let get = |attribute: u32, address: u64| {
        let mut value = 0_u64;
        (code!(d, cuPointerGetAttribute(&mut value, attribute, address)), value)
    };
    let blocks = [d.alloc(BYTES)?, d.alloc(BYTES)?];
    for block in blocks {
        let (base, bytes) = (get(MAPPING_BASE, block + 100), get(MAPPING_SIZE, block + 100));
        println!("  at its begin {}, bytes {bytes:?}", base == (0, block));
    }
    let [first, second] = blocks.map(|block| get(MEMORY_BLOCK_ID, block));
    let same = get(MEMORY_BLOCK_ID, blocks[0] + BYTES as u64 - 1);
    println!("  alike {}, of one alike {}", first == second, first == same);
    blocks.into_iter().try_for_each(|block| d.free(block))
}

/// The attribute belongs to one allocation: not to adjacent blocks, and not to the next block at
/// its address.
pub fn sync_memops(d: &Driver) -> Outcome {
    let set = |address: u64, value: u32| {
        code!(d, cuPointerSetAttribute((&raw const value).cast(), SYNC_MEMOPS, address))
    };
    let get = |address: u64| {
        let mut value = 0_u64;
        let code = code!(d, cuPointerGetAttribute(&mut value, SYNC_MEMOPS, address));
        (code, value as u8)
    };
    let stream = stream(d)?;
    for bytes in [512, 1000, 1 << 20, 3 << 20, 33 << 20] {
        let blocks = [d.alloc(bytes)?, d.alloc(bytes)?, d.alloc(bytes)?];
        let before = blocks.map(get);
        let codes = [set(blocks[1] + 8, 1), set(blocks[1], 1)];
        let inside = get(blocks[1] + bytes as u64 - 1);
        println!("sync {bytes}: {before:?}, set {codes:?}, {:?} {inside:?}", blocks.map(get));
        println!("  cleared {} {:?}", set(blocks[1], 0), blocks.map(get));
        println!("  set {} {} {:?}", set(blocks[0], 1), set(blocks[1], 1), blocks.map(get));
        println!("  one cleared {} {:?}", set(blocks[0], 0), blocks.map(get));
        d.free(blocks[1])?;
        println!("  freed {:?}, set {}", get(blocks[1]), set(blocks[1], 1));
        let fresh = [d.alloc(bytes)?, d.alloc(bytes)?];
        println!(
            "  the next ones {:?}, the others {:?}",
            fresh.map(get),
            [0, 2].map(|i| get(blocks[i]))
        );
        for block in [blocks[0], blocks[2], fresh[0], fresh[1]] {
            d.free(block)?;
        }
    }
    let ordered = d.alloc_async(4096, stream)?;
    println!("sync, stream-ordered: {} {:?}", set(ordered, 1), get(ordered));
    d.free_async(ordered, stream)?;
    let next = d.alloc_async(4096, stream)?;
    println!("  the next one {:?}", get(next));
    d.free_async(next, stream)?;
    let (value, block) = (1_u32, d.alloc(4096)?);
    let value_at = (&raw const value).cast();
    let others: Vec<i32> = (1..=17)
        .filter(|kind| *kind != SYNC_MEMOPS)
        .map(|kind| code!(d, cuPointerSetAttribute(value_at, kind, block)))
        .collect();
    println!(
        "set others {others:?}, null value {}, wild {}, null {}",
        code!(d, cuPointerSetAttribute(std::ptr::null(), SYNC_MEMOPS, block)),
        set(0x1234_5000, 1),
        set(0, 1)
    );
    d.free(block)
}

/// Buffer ids are constant throughout a block and differ between blocks, whatever else is set.
pub fn buffer_ids(d: &Driver) -> Outcome {
    let id = |address: u64| {
        let mut value = UNTOUCHED;
        let code = code!(d, cuPointerGetAttribute(&mut value, BUFFER_ID, address));
        (code == 0).then_some(value)
    };
    for bytes in [512, 100_000, 3 << 20, 12 << 20] {
        let mut seen = std::collections::HashSet::new();
        let (mut consistent, mut fresh) = (true, true);
        for _ in 0..20 {
            let blocks = [d.alloc(bytes)?, d.alloc(bytes)?, d.alloc_async(bytes, 0)?];
            let on = 1_u32;
            consistent &=
                code!(d, cuPointerSetAttribute((&raw const on).cast(), SYNC_MEMOPS, blocks[1]))
                    == 0;
            for block in blocks {
                let own = id(block);
                consistent &=
                    own.is_some() && own == id(block + bytes as u64 - 1) && own == id(block);
                fresh &= seen.insert(own);
            }
            d.free(blocks[0])?;
            d.free(blocks[1])?;
            d.free_async(blocks[2], 0)?;
        }
        println!("buffer ids of {bytes}: consistent {consistent}, fresh {fresh}");
    }
    d.synchronize()
}

/// dma-buf handles for pages of live memory. If the driver cannot make one, only that is printed.
pub fn handles(d: &Driver) -> Outcome {
    let handle = |address: u64, bytes: usize, kind: u32| {
        let mut file = -7;
        let code = code!(d, cuMemGetHandleForAddressRange(&mut file, address, bytes, kind, 0));
        if code == 0 {
            // SAFETY: this function owns the descriptor.
            unsafe { libc::close(file) };
        }
        (code, file == -7)
    };
    let (block, freed) = (d.alloc(4 << 20)?, d.alloc(6 << 20)?);
    let whole = handle(block, 4 << 20, 1);
    println!("handle: whole {whole:?}, a page {:?}", handle(block, 64 << 10, 1));
    println!("  inside {:?}", handle(block + (64 << 10), 128 << 10, 1));
    println!("  unaligned {:?}, {:?}", handle(block + 512, 4096, 1), handle(block, 1000, 1));
    println!(
        "  of nothing {:?}, unknown kind {:?}",
        handle(block, 0, 1),
        handle(block, 65_536, 99)
    );
    println!("  wild {:?}, null {:?}", handle(0x1234_0000, 65_536, 1), handle(0, 65_536, 1));
    let null = code!(d, cuMemGetHandleForAddressRange(std::ptr::null_mut(), block, 65_536, 1, 0));
    println!("  into null {null}");
    d.free(freed)?;
    println!("  freed {:?}", handle(freed, 6 << 20, 1));
    d.free(block)
}
