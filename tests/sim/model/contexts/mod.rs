//! Contexts and what lives in them: streams and events, which order work, and modules.

pub mod context;
pub mod event;
pub mod module;
pub mod stream;
