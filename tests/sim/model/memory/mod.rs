//! Everything that has an address or takes memory of a device.

pub mod allocations;
pub mod array;
pub mod backing;
pub mod code;
pub mod foreign;
pub mod group;
pub mod ipc;
pub mod pool;
pub mod raw;
pub mod share;
pub mod space;
pub mod tensor_map;
pub mod vmm;
