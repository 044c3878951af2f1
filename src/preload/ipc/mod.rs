//! Memory of other processes and devices.

pub mod exports;
pub mod imports;
pub mod ipc_handle;
pub mod peers;
