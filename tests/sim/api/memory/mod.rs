//! Memory of devices and hosts, pools, addresses, and handles of memory for other processes.

pub mod array;
pub mod device_memory;
pub mod external;
pub mod host_memory;
pub mod ipc;
pub mod multicast;
pub mod object;
pub mod pointer;
pub mod pool;
pub mod pool_sharing;
pub mod vmm;
