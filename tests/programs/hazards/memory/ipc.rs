//! Memory handles for other processes, opened in the process that made them: the simulation allows
//! what the real driver refuses. `programs/ipc.rs` and `tests/gpu/cuda/ipc.cu` use two processes.

use cachealloc_tests::driver::{Driver, Outcome};
use cachealloc_tests::functions::IpcHandle;

use crate::memory::scarce::beside_references;
use crate::tools::*;

pub const ALL: &[Hazard] = &[
    hazard!(Always, export_of_neighbours),
    hazard!(Always, close_of_what_is_not_open),
    hazard!(Always, opens_beside_references),
    hazard!(Always, exported_block_is_not_reused, ours),
    hazard!(Always, block_behind_a_dma_buf_is_not_reused, ours),
    hazard!(Always, dma_buf_of_a_block_widened_to_pages),
    hazard!(Always, large_blocks_after_an_export),
    hazard!(Always, handle_of_a_freed_block),
    hazard!(Always, handles_that_are_damaged),
    hazard!(Always, memory_that_cannot_be_exported),
    hazard!(Always, free_of_stream_ordered_memory_behind_an_export),
    hazard!(Always, memory_comes_back_after_an_export, machine = "SIM_MEMORY_MB=64"),
];

const MIB: usize = 1 << 20;
const BUFFER_ID: u32 = 7;
const LEGACY_IPC_CAPABLE: u32 = 10;
const MAPPING_BASE: u32 = 19;

fn handle(d: &Driver, at: u64) -> Outcome<IpcHandle> {
    let mut handle = IpcHandle::default();
    call!(d, cuIpcGetMemHandle(&mut handle, at))?;
    Ok(handle)
}

fn open(d: &Driver, handle: IpcHandle) -> Outcome<u64> {
    let mut address = 0;
    call!(d, cuIpcOpenMemHandle(&mut address, handle, 1))?;
    Ok(address)
}

fn close(d: &Driver, address: u64) -> Outcome {
    call!(d, cuIpcCloseMemHandle(address))
}

fn attribute(d: &Driver, attribute: u32, address: u64) -> Outcome<u64> {
    let mut value = 0;
    call!(d, cuPointerGetAttribute(&mut value, attribute, address))?;
    Ok(value)
}

/// Each block opens as itself, from any address inside it, any number of times, and is closed by
/// its own address.
fn export_of_neighbours(d: &Driver) -> Verdict {
    let mut said = Vec::new();
    for bytes in [512, 4096, SMALL, MIB, MIB + MIB / 2, BYTES] {
        let blocks = [d.alloc(bytes)?, d.alloc(bytes)?, d.alloc(bytes)?];
        for (index, block) in blocks.iter().enumerate() {
            fill(d, 0, *block, bytes, index as u64, 0)?;
        }
        let mut ids = Vec::new();
        let mut opened = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            let handles = [handle(d, *block)?, handle(d, *block + bytes as u64 / 2)?];
            let twice = [open(d, handles[0])?, open(d, handles[1])?];
            if twice != [*block; 2] || !holds(d, twice[0], bytes, index as u64)? {
                return Ok(format!("FAIL, {bytes} bytes, block {index} opens as another"));
            }
            said.push(d.address_range(twice[0])?.1);
            ids.push(attribute(d, BUFFER_ID, twice[0])?);
            opened.extend(twice);
        }
        ids.dedup();
        // One close too many does not close the adjacent blocks, which are still open.
        let thrice = opened.chunks(2).map(|it| [it[0], it[1], it[0]].map(|at| code(close(d, at))));
        let closed: Vec<[i32; 3]> = thrice.collect();
        let good = closed.iter().all(|[one, two, three]| [*one, *two] == [0; 2] && *three != 0);
        if ids.len() != 3 || !good {
            return Ok(format!("FAIL, {bytes} bytes: ids {ids:?}, closed {closed:?}"));
        }
        blocks.into_iter().try_for_each(|block| d.free(block))?;
    }
    Ok(format!("ok, sizes {said:?}"))
}

/// The close is refused, although an adjacent block of the segment is open, and although other
/// memory was open at that address before.
fn close_of_what_is_not_open(d: &Driver) -> Verdict {
    let whole = d.alloc(64 * MIB)?;
    let opened = open(d, handle(d, whole)?)?;
    close(d, opened)?;
    d.free(whole)?;
    let blocks = [d.alloc(SMALL)?, d.alloc(SMALL)?];
    let opened = open(d, handle(d, blocks[1])?)?;
    let codes = [whole, blocks[0], opened, opened].map(|at| code(close(d, at)));
    Ok(format!("codes {codes:?}"))
}

/// Opens and closes a handle equally often, while another thread takes and releases references to
/// the context.
fn opens_beside_references(d: &Driver) -> Verdict {
    let (first, second) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    let handles = [handle(d, first)?, handle(d, second)?];
    let refused = beside_references(d, || {
        let mut refused = 0;
        for handle in (0..400).flat_map(|_| handles) {
            let opened = [open(d, handle)?, open(d, handle)?, open(d, handle)?];
            refused += opened.iter().filter(|at| close(d, **at).is_err()).count();
        }
        Ok(refused)
    })?;
    ok_if(refused == 0, &format!("a close failed {refused} times"))
}

/// The driver itself hands the same address out next; under the library an importer may still read
/// it.
fn exported_block_is_not_reused(d: &Driver) -> Verdict {
    let (neighbour, block) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    handle(d, block)?;
    d.free(block)?;
    for _ in 0..40 {
        let next = d.alloc(SMALL)?;
        if next == block {
            return Ok("FAIL, another process may read it".into());
        }
        d.free(next)?;
    }
    let stream = d.stream()?;
    let exported = d.alloc(SMALL)?;
    handle(d, exported)?;
    d.free_async(exported, stream)?;
    let next = d.alloc_async(SMALL, stream)?;
    d.free(neighbour)?;
    ok_if(next != exported, "another process may read it")
}

/// Other hardware may still access the memory: on the plain driver it lives as long as the
/// descriptor.
fn block_behind_a_dma_buf_is_not_reused(d: &Driver) -> Verdict {
    let (_neighbour, block) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    let file = dma_buf(d, block, SMALL)?;
    d.free(block)?;
    for _ in 0..40 {
        let next = d.alloc(SMALL)?;
        if next == block {
            return Ok("FAIL, other hardware may read it".into());
        }
        d.free(next)?;
    }
    // SAFETY: the descriptor was made for us.
    unsafe { libc::close(file) };
    Ok("ok".into())
}

/// RDMA stacks request such descriptors, whatever the state of the adjacent blocks.
fn dma_buf_of_a_block_widened_to_pages(d: &Driver) -> Verdict {
    const UNEVEN: usize = 3 * MIB + 512;
    let blocks = (0..4).map(|_| d.alloc(UNEVEN)).collect::<Outcome<Vec<u64>>>()?;
    let widened = || {
        let begin = blocks[1] & !0xfff;
        let end = (blocks[1] + UNEVEN as u64).next_multiple_of(4096);
        let file = dma_buf(d, begin, (end - begin) as usize)?;
        // SAFETY: the descriptor was made for us.
        unsafe { libc::close(file) };
        Outcome::Ok(())
    };
    let mut said = vec![widened().is_ok()];
    for neighbour in [blocks[0], blocks[2]] {
        d.free(neighbour)?;
        said.push(widened().is_ok());
    }
    Ok(format!("{said:?}"))
}

fn dma_buf(d: &Driver, at: u64, bytes: usize) -> Outcome<i32> {
    let mut file = -1;
    call!(d, cuMemGetHandleForAddressRange(&mut file, at, bytes, 1, 0))?;
    Ok(file)
}

/// The importer holds the driver's own handle to the block.
fn large_blocks_after_an_export(d: &Driver) -> Verdict {
    let (small, before) = (d.alloc(SMALL)?, d.alloc(BYTES)?);
    handle(d, small)?;
    let mut blocks = vec![];
    for bytes in [BYTES, MIB + 1, 20 * MIB, 9 * MIB, BYTES] {
        blocks.push(d.alloc(bytes)?);
    }
    d.free(before)?;
    blocks.push(d.alloc(BYTES)?);
    let bases = blocks.iter().map(|block| attribute(d, MAPPING_BASE, *block));
    let bases: Vec<u64> = bases.collect::<Outcome<_>>()?;
    // The first block lay in a segment of several. It may be handed out again once that segment is
    // whole.
    ok_if(bases == blocks, "a large block begins inside a segment")
}

fn handle_of_a_freed_block(d: &Driver) -> Verdict {
    let mut codes = Vec::new();
    for bytes in [12 * MIB, 64 * MIB] {
        let block = d.alloc(bytes)?;
        let handle = handle(d, block)?;
        d.free(block)?;
        codes.push(code(open(d, handle)));
    }
    let block = d.alloc(12 * MIB)?;
    d.free(block)?;
    codes.push(code(handle(d, block).map(drop)));
    Ok(format!("codes {codes:?}"))
}

/// Opening such a handle is refused or gives the right block, never another one.
fn handles_that_are_damaged(d: &Driver) -> Verdict {
    let (first, second) = (d.alloc(SMALL)?, d.alloc(SMALL)?);
    for block in [first, second] {
        let handle = handle(d, block)?;
        for byte in 0..64 {
            for bit in 0..8 {
                let mut damaged = handle;
                damaged.0[byte / 8] ^= 1 << (byte % 8 * 8 + bit);
                if let Ok(opened) = open(d, damaged) {
                    if opened != block {
                        return Ok(format!("FAIL, byte {byte} opens another block"));
                    }
                    close(d, opened)?;
                }
            }
        }
        let opened = open(d, handle)?;
        close(d, opened)?;
    }
    Ok("ok".into())
}

fn memory_that_cannot_be_exported(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    let pooled = [d.alloc_async(SMALL, stream)?, d.alloc_async(20 * MIB, stream)?];
    let freed = d.alloc(SMALL)?;
    d.free(freed)?;
    let codes = [pooled[0], pooled[1], pooled[0] + 512, freed, 4096];
    let exportable = [pooled[0], d.alloc(SMALL)?].map(|block| {
        let capable = attribute(d, LEGACY_IPC_CAPABLE, block).map(|value| value as u8);
        capable.unwrap_or(9)
    });
    let codes = codes.map(|address| code(handle(d, address).map(drop)));
    Ok(format!("codes {codes:?}, said to be exportable {exportable:?}"))
}

fn memory_comes_back_after_an_export(d: &Driver) -> Verdict {
    for round in 0..6 {
        let large = d.alloc(50 * MIB)?;
        handle(d, large)?;
        d.free(large)?;
        let small = [d.alloc(MIB)?, d.alloc(SMALL)?, d.alloc(BYTES)?];
        for block in small.iter().skip(round % 2) {
            handle(d, *block)?;
        }
        small.into_iter().try_for_each(|block| d.free(block))?;
    }
    Ok("ok".into())
}

/// Exported memory is freed in stream order, and stream-ordered memory by `cuMemFree`, which on the
/// plain driver waits for no kernel.
fn free_of_stream_ordered_memory_behind_an_export(d: &Driver) -> Verdict {
    let (spins, stream, flag) = (d.stream()?, d.stream()?, d.pinned(64)?);
    let exported = d.alloc(20 * MIB)?;
    handle(d, exported)?;
    let pooled = d.alloc_async(4 * MIB, stream)?;
    d.free_async(exported, stream)?;
    d.synchronize_stream(stream)?;
    d.set_flag(flag, 0);
    d.launch("spin", spins, &[flag, 1])?;
    let freed = code(d.free(pooled));
    d.set_flag(flag, 1);
    d.synchronize()?;
    Ok(format!("code {freed}"))
}
