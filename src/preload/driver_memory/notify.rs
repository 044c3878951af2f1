//! Notifies memory hooks of memory in the table, after a call of the program that allocated or
//! ended some.

use cachealloc_statistics::breakdown::Component;

use crate::driver_memory::ending::Ending;
use crate::driver_memory::table::{Key, Physical, Served, TABLE};
use crate::lock::lock;
use crate::memory_hooks;
use crate::memory_hooks::other_memory::{Kind, Observed, Other};
use crate::process::bypass;

/// What to notify once the driver has agreed. Nothing without a hook.
#[derive(Default)]
pub(crate) enum Heard {
    #[default]
    Nothing,
    Made(Named),
    /// Each with what the hooks were notified of at its allocation.
    Ended(Vec<(Other, Observed)>),
}

#[derive(Clone, Copy)]
pub(crate) enum Named {
    Place(Key),
    /// Physical memory, by its handle.
    Physical(u64),
}

impl Heard {
    pub(crate) fn made(named: Named) -> Heard {
        if bypass::is_fast_path() { Heard::Nothing } else { Heard::Made(named) }
    }

    /// Collects what ends. Must be called before the ending is finished.
    pub(crate) fn ended(ending: &Ending) -> Heard {
        if bypass::is_fast_path() {
            return Heard::Nothing;
        }
        let served = ending.served.iter();
        let served = served.filter_map(|(key, served)| Some((of(*key, served)?, served.observed?)));
        let over = ending.over.iter().filter_map(|(handle, physical)| {
            Some((of_physical(*handle, physical), physical.observed?))
        });
        Heard::Ended(served.chain(over).collect())
    }

    /// Notifies the hooks. Must be called with no lock held, outside the library's hooks of driver
    /// functions.
    pub(crate) fn tell(self) {
        match self {
            Heard::Nothing => {}
            Heard::Made(named) => {
                if let Some(other) = find(named) {
                    memory_hooks::other_allocated(other, |observed| observe(named, observed));
                }
            }
            Heard::Ended(ended) => {
                ended.iter().for_each(|(other, seen)| memory_hooks::other_freed(other, seen));
            }
        }
    }
}

fn find(named: Named) -> Option<Other> {
    let table = lock(&TABLE);
    match named {
        Named::Place(key) => of(key, table.served.get(&key)?),
        Named::Physical(handle) => Some(of_physical(handle, table.physical.get(&handle)?)),
    }
}

fn observe(named: Named, observed: Observed) {
    let mut table = lock(&TABLE);
    let place = match named {
        Named::Place(key) => table.served.get_mut(&key).map(|it| &mut it.observed),
        Named::Physical(handle) => table.physical.get_mut(&handle).map(|it| &mut it.observed),
    };
    place.into_iter().for_each(|place| *place = Some(observed));
}

/// Describes memory to hooks. Returns `None` for linear memory.
fn of(key: Key, served: &Served) -> Option<Other> {
    let kind = match (key, served.component) {
        (Key::Array(_), _) => Kind::Array,
        (_, None) => Kind::Mapped,
        (_, Some(Component::Managed)) => Kind::Managed,
        (_, Some(Component::Pinned)) => Kind::Pinned,
        _ => return None,
    };
    let Served { device, bytes, .. } = *served;
    Some(Other { kind, device, bytes, number: key.number() })
}

fn of_physical(handle: u64, physical: &Physical) -> Other {
    let Physical { device, bytes, .. } = *physical;
    Other { kind: Kind::Physical, device, bytes, number: handle }
}
