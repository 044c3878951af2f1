//! The pure allocator and the ordering rules. It never calls out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod rules;
pub mod order;
