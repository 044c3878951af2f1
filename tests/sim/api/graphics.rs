//! Registration of resources of graphics APIs, and contexts beside them. Any number is a resource:
//! its memory cannot be mapped.

use super::contexts::context;
use super::pointers::Out;
use crate::abi::{Code, Handle};
use crate::call::Call;

driver! {
    fn cuGLRegisterBufferObject: (buffer: u32) |call| {
        Ok(())
    }

    fn cuGraphicsGLRegisterBuffer: (resource: Out<Handle>, buffer: u32, flags: u32) |call| {
        register(call, resource, u64::from(buffer))
    }

    fn cuGraphicsGLRegisterImage: (
        resource: Out<Handle>, image: u32, target: u32, flags: u32
    ) |call| {
        register(call, resource, u64::from(image))
    }

    fn cuGraphicsEGLRegisterImage: (resource: Out<Handle>, image: u64, flags: u32) |call| {
        register(call, resource, image)
    }

    fn cuGraphicsVDPAURegisterVideoSurface, cuGraphicsVDPAURegisterOutputSurface: (
        resource: Out<Handle>, surface: u32, flags: u32
    ) |call| {
        register(call, resource, u64::from(surface))
    }

    fn cuGraphicsUnregisterResource: (resource: Handle) |call| {
        call.world().resources.remove(resource).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    fn cuEGLStreamConsumerConnect: (connection: Out<Handle>, stream: u64) |call| {
        register(call, connection, stream)
    }

    fn cuEGLStreamConsumerConnectWithFlags: (
        connection: Out<Handle>, stream: u64, flags: u32
    ) |call| {
        register(call, connection, stream)
    }

    fn cuEGLStreamProducerConnect: (
        connection: Out<Handle>, stream: u64, width: i32, height: i32
    ) |call| {
        register(call, connection, stream)
    }

    fn cuGLCtxCreate, cuGLCtxCreate_v2: (context: Out<Handle>, flags: u32, device: i32) |call| {
        context::create(call, context, flags, device)
    }

    fn cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2: (
        context: Out<Handle>, flags: u32, device: i32, display: u64, get_proc_address: u64
    ) |call| {
        context::create(call, context, flags, device)
    }
}

fn register(call: &mut Call, resource: Out<Handle>, number: u64) -> crate::abi::Outcome {
    resource.put(call.world().resources.insert(number))
}
