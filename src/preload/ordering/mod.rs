//! Decides what a free has to wait for, and which observers its barrier does not order.

pub(crate) mod across;
pub(crate) mod barrier;
pub(crate) mod before_submission;
pub(crate) mod captures;
pub(crate) mod communication;
pub(crate) mod deferred_wait;
pub(crate) mod elision;
pub(crate) mod kernels;
pub(crate) mod legacy_stream;
pub(crate) mod native_wait;
pub(crate) mod observers;
pub(crate) mod orphaned_barriers;
pub(crate) mod pending;
pub(crate) mod pinned;
pub(crate) mod programmatic_launch;
pub(crate) mod real_frees;
pub(crate) mod submissions;
