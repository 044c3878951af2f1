//! From the address of an allocated block to the block: an open hash table with linear probing.
//! Every free by the program asks it once, so it must cost less than an ordered map.

use alloc::vec::Vec;

use crate::types::{Address, BlockId};

/// Addresses of blocks are multiples of 512, hence never this one.
const VACANT: Address = Address(u64::MAX);
const PLACES_COUNT_MIN: usize = 64;

#[derive(Clone)]
pub(crate) struct Addresses {
    /// A power of two of places, at most a quarter of them taken: nearly every address is in its first place.
    places: Vec<(Address, BlockId)>,
    taken_count: usize,
}

impl Addresses {
    pub(crate) fn new() -> Addresses {
        Addresses { places: vacant_places(PLACES_COUNT_MIN), taken_count: 0 }
    }

    /// Whether so many can be inserted without more memory of the system's.
    #[inline]
    pub(crate) fn has_room(&mut self, count: usize) -> bool {
        (self.taken_count + count) * 4 <= self.places.len() || self.make_room(count)
    }

    #[cold]
    fn make_room(&mut self, count: usize) -> bool {
        let places_count = ((self.taken_count + count) * 4).next_power_of_two();
        let mut places = Vec::new();
        if places.try_reserve_exact(places_count).is_err() {
            return false;
        }
        places.resize(places_count, (VACANT, BlockId(0)));
        self.move_to(places);
        true
    }

    pub(crate) fn insert(&mut self, address: Address, id: BlockId) {
        if (self.taken_count + 1) * 4 > self.places.len() {
            self.move_to(vacant_places(self.places.len() * 2));
        }
        let place = self.place_of(address);
        assert!(self.places[place].0 == VACANT, "{address:?} is already allocated");
        self.places[place] = (address, id);
        self.taken_count += 1;
    }

    pub(crate) fn get(&self, address: Address) -> Option<BlockId> {
        let (found, id) = self.places[self.place_of(address)];
        (found == address && found != VACANT).then_some(id)
    }

    /// Later entries of the same run move up, so that no search stops at the hole.
    pub(crate) fn remove(&mut self, address: Address) {
        let mut hole = self.place_of(address);
        assert!(self.places[hole].0 == address, "{address:?} is not allocated");
        let mut place = hole;
        loop {
            place = (place + 1) & self.mask();
            let entry = self.places[place];
            if entry.0 == VACANT {
                break;
            }
            // An entry may move into the hole unless its home lies between hole and entry.
            let from_home = place.wrapping_sub(self.home(entry.0)) & self.mask();
            let from_hole = place.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.places[hole] = entry;
                hole = place;
            }
        }
        self.places[hole].0 = VACANT;
        self.taken_count -= 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.taken_count
    }

    /// Where the address is, or where it would be inserted.
    fn place_of(&self, address: Address) -> usize {
        let mut place = self.home(address);
        while self.places[place].0 != VACANT && self.places[place].0 != address {
            place = (place + 1) & self.mask();
        }
        place
    }

    fn home(&self, address: Address) -> usize {
        // Fibonacci hashing: the upper bits of the product are well mixed.
        let mixed = address.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & self.mask()
    }

    fn mask(&self) -> usize {
        self.places.len() - 1
    }

    fn move_to(&mut self, places: Vec<(Address, BlockId)>) {
        let old = core::mem::replace(&mut self.places, places);
        for (address, id) in old.into_iter().filter(|(address, _)| *address != VACANT) {
            let place = self.place_of(address);
            self.places[place] = (address, id);
        }
    }
}

fn vacant_places(count: usize) -> Vec<(Address, BlockId)> {
    alloc::vec![(VACANT, BlockId(0)); count]
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    /// Addresses at the same home, inserted and removed in every order the numbers give.
    #[test]
    fn agrees_with_an_ordered_map() {
        let mut addresses = Addresses::new();
        let mut model = BTreeMap::new();
        let mut number = 1_u64;
        for step in 0..20_000_u32 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = Address((number >> 33) % 300 * 512);
            if model.remove(&address).is_some() {
                addresses.remove(address);
            } else {
                model.insert(address, BlockId(step));
                addresses.insert(address, BlockId(step));
            }
            let probe = Address((number >> 40) % 300 * 512);
            assert_eq!(addresses.get(probe), model.get(&probe).copied());
            assert_eq!(addresses.len(), model.len());
        }
        assert!(model.iter().all(|(address, id)| addresses.get(*address) == Some(*id)));
    }
}
