//! Memory breakdown of each device as recorded in the file. Files of cachealloc have rows for
//! everything the library knows besides its allocations. Files of PyTorch have only what its cache
//! held.

use cachealloc_statistics::breakdown::{self, Breakdown, Component};

use crate::model::{BlockState, Device, Snapshot};

/// Returns one breakdown per device, the host last. Returns nothing if the file has none, as
/// recovered files of cachealloc.
pub fn breakdowns(snapshot: &Snapshot) -> Vec<Breakdown> {
    if !snapshot.is_ours() {
        let devices = (0..).zip(&snapshot.devices).map(|(number, device)| of_cache(number, device));
        return devices.filter(|breakdown| !breakdown.rows.is_empty()).collect();
    }
    let texts = snapshot.settings.ours.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut breakdowns = breakdown::of_texts(texts);
    breakdowns.sort_by_key(|breakdown| (breakdown.device == breakdown::HOST, breakdown.device));
    breakdowns
}

fn of_cache(number: i32, device: &Device) -> Breakdown {
    let mut breakdown = Breakdown::new(number);
    for block in device.segments.iter().flat_map(|segment| &segment.blocks) {
        let component = match block.state {
            BlockState::Allocated => Component::CacheHeld,
            BlockState::Pending => Component::CacheWaiting,
            BlockState::Free => Component::CacheFree,
        };
        breakdown.add(component, "", block.bytes);
    }
    breakdown
}
