//! Devices, contexts, and what lives in a context: streams, events, modules.

pub mod context;
pub mod device;
pub mod event;
pub mod green;
pub mod module;
pub mod occupancy;
pub mod stream;
