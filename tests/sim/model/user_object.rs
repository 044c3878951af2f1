//! User objects: the program's data that lives as long as some graph needs it.

use std::sync::Arc;

use super::callbacks::{self, Job};

/// Its destructor runs, on the driver's own thread, when the last reference is gone:
/// the program's, a graph's, an executable's, or that of a launch in flight.
pub struct UserObject {
    pub data: usize,
    pub destructor: usize,
}

impl Drop for UserObject {
    fn drop(&mut self) {
        callbacks::push(Job::Destructor { function: self.destructor, data: self.data });
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
