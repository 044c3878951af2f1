//! Finds the smallest device on which a recorded run completes, and the options it needs.
//!
//! A history contains what a program allocated and freed, in order ([`Requests`]). The requests go
//! through the library's allocator once more ([`replay()`]), with memory that is only counted
//! ([`Capacity`]) and is requested as the library would request it from a driver. There is only one
//! allocator, so the result of a replay is what the library would do.
//!
//! A result is about requests that are all known. What is not known is listed next to it
//! ([`DeviceFit::unknowns`]), not guessed. Nothing here uses a clock or a device.
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
