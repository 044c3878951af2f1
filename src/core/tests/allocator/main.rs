//! Tests of the allocator from the outside. In reading order: the language of the scenarios, the
//! scenarios, the oracle, and the two ways to make programs for it.

mod picture;
mod scenarios;
mod statistics;

mod count;
mod decay;
mod driver;
mod model;
mod naive;
mod windows;
mod world;

mod behind;
mod explore;
mod more_memory;
mod programs;
mod questions;
mod random;

mod oracle;

mod speed;
mod steady;
#[path = "../../../../tests/tier.rs"]
mod tier;
mod traces;
