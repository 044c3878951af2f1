//! Pools for other processes. The same process can also import them, which the real driver rejects:
//! so that one process can test them.

use crate::abi::{Code, DevicePtr, Handle};
use crate::api::pointers::{In, Out};
use crate::model::memory::allocations::Kind;
use crate::model::memory::pool::Pool;
use crate::model::memory::raw;

/// `CUmemPoolPtrExportData`: the pool, and the base of the allocation.
type Exported = [u64; 8];

driver! {
    fn cuMemPoolExportToShareableHandle: (
        file: Out<i32>, pool: Handle, kind: u32, flags: u64
    ) |call| {
        let known = call.world().pools.find(pool).ok_or(Code::INVALID_VALUE)?;
        // Measured for the default pool, which has no kind of handle.
        if kind != FILE_DESCRIPTOR || known.handle_types & kind == 0 || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        file.put(raw::file_of(pool).ok_or(Code::OUT_OF_MEMORY)?)
    }

    fn cuMemPoolImportFromShareableHandle: (
        pool: Out<Handle>, file: u64, kind: u32, flags: u64
    ) |call| {
        let known = raw::handle_in(file as i32).filter(|_| kind == FILE_DESCRIPTOR && flags == 0);
        let known = known.ok_or(Code::INVALID_VALUE)?;
        let world = call.world();
        let exported = world.pools.find(known).filter(|pool| pool.handle_types & kind != 0);
        let imported = Pool::imported(known, exported.ok_or(Code::INVALID_VALUE)?);
        pool.put(world.pools.insert(imported))
    }

    fn cuMemPoolExportPointer: (data: Out<Exported>, address: DevicePtr) |call| {
        let world = call.world();
        let found = world.memory.find(address).ok_or(Code::INVALID_VALUE)?;
        // Measured: memory of `cuMemAlloc` and of the default pool is rejected.
        let Kind::Pool { pool, .. } = found.kind else { return Err(Code::INVALID_VALUE) };
        let base = found.base;
        if world.pools.get(pool)?.handle_types == 0 {
            return Err(Code::INVALID_VALUE);
        }
        data.put([pool, base, 0, 0, 0, 0, 0, 0])
    }

    fn cuMemPoolImportPointer: (
        address: Out<DevicePtr>, pool: Handle, data: In<Exported>
    ) |call| {
        let [exported, base, ..] = data.get()?;
        let context = call.context()?;
        let world = call.world();
        let known = world.pools.find(pool).ok_or(Code::INVALID_VALUE)?;
        let is_there = world.memory.at_base(base).is_some_and(
            |found| matches!(found.kind, Kind::Pool { pool, .. } if pool == exported)
        );
        if known.imported != Some(exported) || !is_there {
            return Err(Code::INVALID_VALUE);
        }
        let ctx = world.contexts.get(context)?.id;
        address.put(world.map_again(base, ctx)?)
    }
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FILE_DESCRIPTOR: u32 = 1;
