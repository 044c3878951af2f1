//! Memory handles for other processes (`model/memory/ipc.rs`). The same process can also open
//! them, which the real driver rejects: so that one process can test them.
//!
//! A handle names the whole allocation, whatever address inside it was given (measured: the
//! importer of an interior pointer gets the base). Bytes 24-27, 32-36 and 48-55 are checked
//! when it is opened, the others are not.

use crate::abi::{Code, DevicePtr, Handle, IpcHandle, Outcome};
use crate::api::pointers::Out;
use crate::call::Call;
use crate::model::contexts::event::Event;
use crate::model::memory::allocations::{Allocation, Kind};
use crate::model::memory::ipc;

driver! {
    fn cuIpcGetMemHandle: (handle: Out<IpcHandle>, address: DevicePtr) |call| {
        call.context()?;
        let found = call.world().memory.find(address).ok_or(Code::INVALID_VALUE)?;
        if found.kind != Kind::Device {
            return Err(Code::INVALID_VALUE);
        }
        let (found, memory) = (found.clone(), &mut call.world().memory);
        ipc::export(memory, &found);
        handle.put(handle_of(&found))
    }

    fn cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2: (
        address: Out<DevicePtr>, handle: IpcHandle, flags: u32
    ) |call| {
        call.context()?;
        address.put(open(call, &handle)?)
    }

    fn cuIpcCloseMemHandle: (address: DevicePtr) |call| {
        let world = call.world();
        if world.imports.close(&mut world.memory, address).is_some() {
            return Ok(());
        }
        let ipc = &mut world.ipc;
        let count = ipc.get_mut(&address).ok_or(Code::INVALID_VALUE)?;
        *count -= 1;
        if *count == 0 {
            ipc.remove(&address);
        }
        Ok(())
    }

    fn cuIpcGetEventHandle: (handle: Out<IpcHandle>, event: Handle) |call| {
        call.world().events.get(event)?;
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&event.to_le_bytes());
        handle.put(IpcHandle(bytes))
    }

    fn cuIpcOpenEventHandle: (event: Out<Handle>, handle: IpcHandle) |call| {
        let context = call.context()?;
        let number = handle.0[..8].try_into().expect("eight bytes");
        let op = call.world().events.get(u64::from_le_bytes(number))?.op.clone();
        let opened = Event { context, timing: false, op, captured: None };
        event.put(call.world().events.insert(opened))
    }
}

fn handle_of(found: &Allocation) -> IpcHandle {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&found.bytes.to_le_bytes());
    bytes[24..28].copy_from_slice(&std::process::id().to_le_bytes());
    bytes[32..37].copy_from_slice(&found.id.to_le_bytes()[..5]);
    bytes[48..56].copy_from_slice(&found.base.to_le_bytes());
    IpcHandle(bytes)
}

fn open(call: &mut Call, handle: &IpcHandle) -> Outcome<DevicePtr> {
    let bytes = &handle.0;
    let base = u64::from_le_bytes(bytes[48..56].try_into().expect("eight bytes"));
    let process = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
    let mut id = [0; 8];
    id[..5].copy_from_slice(&bytes[32..37]);
    if process != std::process::id() {
        let context = call.context()?;
        let world = call.world();
        let (name, ctx) = ((process, u64::from_le_bytes(id)), world.contexts.get(context)?.id);
        return world.imports.open(&mut world.memory, name, base, ctx);
    }
    let found = call.world().memory.at_base(base).map(handle_of);
    let same = |range: std::ops::Range<usize>| {
        found.is_some_and(|found| found.0[range.clone()] == bytes[range])
    };
    if !same(48..52) {
        return Err(Code::INVALID_HANDLE);
    }
    if !(same(24..28) && same(32..37) && same(52..56)) {
        return Err(Code::INVALID_VALUE);
    }
    *call.world().ipc.entry(base).or_default() += 1;
    Ok(base)
}
