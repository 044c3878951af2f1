//! Which context a call concerns: the current one, those with references, and what the driver says of either.

pub(crate) mod lookup;
pub(crate) mod references;
pub(crate) mod stream_identity;
