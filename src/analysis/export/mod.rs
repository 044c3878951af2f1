//! Snapshots as other tools read them.

mod folded;
mod model;
mod perfetto;
mod speedscope;

pub use folded::folded;
pub use model::json;
pub use perfetto::perfetto;
pub use speedscope::speedscope;

use crate::model::{Snapshot, StackId};
use crate::{By, Lives, When, sites};

/// How much a stack of a device weighs.
struct Weighted {
    device: u32,
    stack: StackId,
    weight: u64,
}

/// All stacks that weigh anything, in the order in which they first allocated.
fn weighted(snapshot: &Snapshot, by: By, when: When) -> Vec<Weighted> {
    let mut all = Vec::new();
    for (ordinal, device) in (0..).zip(&snapshot.devices) {
        let lives = Lives::of(device);
        let Some(at) = when.resolve(device, &lives) else { continue };
        for site in sites(device, &lives, at) {
            let weight = by.weight(&site.totals);
            if weight > 0 {
                all.push(Weighted { device: ordinal, stack: site.stack, weight });
            }
        }
    }
    all
}

/// Where a tool wants a frame, and there is none.
const NO_STACK: &str = "[no stack]";
