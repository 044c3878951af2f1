//! Where the memory of a device was, as the file says it: our files have rows for what the library knew
//! beside its allocations, those of PyTorch only what its own cache held.

use cachealloc_statistics::account::{self, Account, Part};

use crate::model::{BlockState, Device, Snapshot};

/// By device, the host last. Empty where the file does not say: ours do not that were recovered.
pub fn accounts(snapshot: &Snapshot) -> Vec<Account> {
    if !snapshot.is_ours() {
        let devices = (0..).zip(&snapshot.devices).map(|(number, device)| of_cache(number, device));
        return devices.filter(|account| !account.rows.is_empty()).collect();
    }
    let texts = snapshot.settings.ours.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut accounts = account::of_texts(texts);
    accounts.sort_by_key(|account| (account.device == account::HOST, account.device));
    accounts
}

fn of_cache(number: i32, device: &Device) -> Account {
    let mut account = Account::new(number);
    for block in device.segments.iter().flat_map(|segment| &segment.blocks) {
        let part = match block.state {
            BlockState::Allocated => Part::CacheHeld,
            BlockState::Pending => Part::CacheWaiting,
            BlockState::Free => Part::CacheFree,
        };
        account.add(part, "", block.bytes);
    }
    account
}
