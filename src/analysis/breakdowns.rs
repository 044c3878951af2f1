//! Where the memory of a device was, as the file says it: our files have rows for what the library
//! knew beside its allocations, those of PyTorch only what its own cache held.

use cachealloc_statistics::breakdown::{self, Breakdown, Component};

use crate::model::{BlockState, Device, Snapshot};

/// By device, the host last. Empty where the file does not say: ours do not that were recovered.
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
