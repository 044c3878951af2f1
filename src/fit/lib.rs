//! On how small a device a recorded run would complete, and under which options.
//!
//! A history says what a program asked for and gave back, in order ([`Requests`]). That goes through the allocator
//! of the library once more ([`replay()`]), with memory that is only counted ([`Capacity`]), as the library itself would
//! ask a driver for it. So there is one allocator, and what is said here of a run is what it would do.
//!
//! The promise: a result is of requests that are all known, and what is not known is listed beside it
//! ([`DeviceFit::unknowns`]), not guessed. Nothing here looks at a clock or a device.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod requests;

mod memory;
mod passes;
mod replay;

mod smallest;

mod option_sets;
mod trials;

mod unknowns;

mod device_fit;

mod format;
mod holders;

pub use device_fit::{DeviceFit, Question};
pub use holders::Holders;
pub use memory::Capacity;
pub use option_sets::OptionSet;
pub use replay::{Outcome, replay};
pub use requests::{Asked, Requests, Step};
pub use smallest::{Smallest, smallest};
pub use trials::{Trial, Verdict};
