//! The cases by name.
