//! User objects: the program's data that lives as long as some graph needs it.

use std::sync::{Arc, Mutex};

use crate::model::races::clock::Clock;
use crate::model::work::callbacks::{self, Destructor};

/// An object of the program. Its destructor runs on a thread of the driver after the last reference
/// is gone: that of the program, a graph, an executable, or a launch in flight.
pub struct UserObject {
    pub data: usize,
    pub destructor: usize,
    /// Clock of its launches, which its destructor joins. `None` if there was no launch.
    launches: Mutex<Option<Clock>>,
}

impl UserObject {
    pub fn new(data: usize, destructor: usize) -> UserObject {
        UserObject { data, destructor, launches: Mutex::new(None) }
    }

    /// Records the end of a launch that has kept the object.
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
        // A handle that the program has moved away is reused.
        let same = |known: &(u64, Arc<UserObject>, u32)| {
            known.0 == handle && Arc::ptr_eq(&known.1, &object)
        };
        match self.0.iter_mut().find(|known| same(known)) {
            Some((_, _, held)) => *held += count,
            None => self.0.push((handle, object, count)),
        }
    }

    /// Removes references. Returns `false` if fewer than `count` are held.
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
