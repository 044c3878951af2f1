//! Which context and which stream a call concerns.

pub(crate) mod lookup;
pub(crate) mod references;
pub(crate) mod stream_identity;
