//! The proofs of the ordering rules.
