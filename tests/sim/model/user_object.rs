//! User objects: the program's data that lives as long as some graph needs it.

use std::sync::{Arc, Mutex};

use super::callbacks::{self, Destructor};
use super::clock::Clock;

/// Its destructor runs, on a thread of the driver's, when the last reference is gone:
/// the program's, a graph's, an executable's, or that of a launch in flight.
pub struct UserObject {
    pub data: usize,
    pub destructor: usize,
    /// What its launches have done, which its end tells; None: there was none.
    launches: Mutex<Option<Clock>>,
}

impl UserObject {
    pub fn new(data: usize, destructor: usize) -> UserObject {
        UserObject { data, destructor, launches: Mutex::new(None) }
    }

    /// A launch that has kept it is over.
    pub fn note_launch(&self, clock: &Clock) {
        let mut launches = self.launches.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        launches.get_or_insert_default().join(clock);
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        let launches = self.launches.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        callbacks::destruct(Destructor {
            function: self.destructor,
            data: self.data,
            launches: launches.take(),
        });
    }
}

/// References that one graph or the program holds, counted.
#[derive(Default)]
pub struct References(Vec<(u64, Arc<UserObject>, u32)>);

impl References {
    pub fn add(&mut self, handle: u64, object: Arc<UserObject>, count: u32) {
        // A handle that the program has moved away is given out again.
        let same = |known: &(u64, Arc<UserObject>, u32)| {
            known.0 == handle && Arc::ptr_eq(&known.1, &object)
        };
        match self.0.iter_mut().find(|known| same(known)) {
            Some((_, _, held)) => *held += count,
            None => self.0.push((handle, object, count)),
        }
    }

    /// False if fewer than `count` are held.
    pub fn remove(&mut self, handle: u64, count: u32) -> bool {
        let Some(index) = self.0.iter().position(|(known, ..)| *known == handle) else {
            return false;
        };
        if self.0[index].2 < count {
            return false;
        }
        self.0[index].2 -= count;
        if self.0[index].2 == 0 {
            self.0.remove(index);
        }
        true
    }

    pub fn objects(&self) -> Vec<Arc<UserObject>> {
        self.0.iter().map(|(_, object, _)| object.clone()).collect()
    }

    pub fn copied(&self) -> References {
        References(
            self.0
                .iter()
                .map(|(handle, object, count)| (*handle, object.clone(), *count))
                .collect(),
        )
    }
}
