//! How much of a device a kernel may use. All answers are those of the simulated device and do not
//! depend on the kernel, which the question loads.

use super::module::{find, used};
use crate::abi::{Code, Handle, LaunchConfig, Outcome};
use crate::api::pointers::{In, Out};

driver! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor: (
        blocks: Out<i32>, function: Handle, threads: i32, shared_bytes: usize
    ) |call| {
        find(call, function)?;
        blocks.put(8)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: (
        blocks: Out<i32>, function: Handle, threads: i32, shared_bytes: usize, flags: u32
    ) |call| {
        find(call, function)?;
        blocks.put(8)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock: (
        bytes: Out<usize>, function: Handle, blocks: i32, threads: i32
    ) |call| {
        let blocks = usize::try_from(blocks).ok().filter(|blocks| (1..=32).contains(blocks));
        let share = SHARED_BYTES / blocks.ok_or(Code::INVALID_VALUE)?;
        used(call, function)?;
        bytes.put((share - SHARED_BYTES_OF_SYSTEM).min(SHARED_BYTES_MAX))
    }

    fn cuOccupancyMaxPotentialBlockSize: (
        grid: Out<i32>, threads: Out<i32>, function: Handle, shared_bytes_of: u64,
        shared_bytes: usize, limit: i32
    ) |call| {
        used(call, function)?;
        potential(grid, threads, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags: (
        grid: Out<i32>, threads: Out<i32>, function: Handle, shared_bytes_of: u64,
        shared_bytes: usize, limit: i32, flags: u32
    ) |call| {
        used(call, function)?;
        potential(grid, threads, limit)
    }

    fn cuOccupancyMaxPotentialClusterSize: (
        blocks: Out<i32>, function: Handle, config: In<LaunchConfig>
    ) |call| {
        config.get()?;
        used(call, function)?;
        blocks.put(CLUSTER_BLOCKS_MAX)
    }

    fn cuOccupancyMaxActiveClusters: (
        clusters: Out<i32>, function: Handle, config: In<LaunchConfig>
    ) |call| {
        config.get()?;
        used(call, function)?;
        clusters.put(MULTIPROCESSORS)
    }
}

/// Numbers of an H200.
const MULTIPROCESSORS: i32 = 132;
const THREADS_MAX: i32 = 2048;
const BLOCK_THREADS_MAX: i32 = 1024;
const CLUSTER_BLOCKS_MAX: i32 = 8;
const SHARED_BYTES: usize = 228 << 10;
const SHARED_BYTES_OF_SYSTEM: usize = 1 << 10;
const SHARED_BYTES_MAX: usize = 227 << 10;

/// The largest block, and as many of them as fill the device.
fn potential(grid: Out<i32>, threads: Out<i32>, limit: i32) -> Outcome {
    let block = if limit <= 0 { BLOCK_THREADS_MAX } else { limit.min(BLOCK_THREADS_MAX) };
    grid.put(MULTIPROCESSORS * (THREADS_MAX / block).min(32))?;
    threads.put(block)
}
