//! The preloaded shared object.
