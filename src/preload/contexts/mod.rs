//! The contexts of the process, each with its cache. They are keyed by the driver's unique id
//! (`cuCtxGetId`), because handles are reused. A record is never removed: other threads may be
//! reading it, and its id is never reused. Its large parts are released with the context.

pub(crate) mod lookup;
pub(crate) mod references;
pub(crate) mod stream_identity;
