//! Handles. A destroyed handle is the next one to be reused, as with the real driver. A library
//! that remembers state by handle fails here.

use crate::abi::{Code, Handle, Outcome};

pub struct Slab<T> {
    tag: u64,
    items: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    /// `tag` keeps handles of different kinds apart; none is ever a small number.
    pub const fn new(tag: u64) -> Slab<T> {
        Slab { tag, items: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, item: T) -> Handle {
        let index = self.free.pop().unwrap_or(self.items.len());
        if index == self.items.len() {
            self.items.push(None);
        }
        self.items[index] = Some(item);
        self.handle(index)
    }

    fn handle(&self, index: usize) -> Handle {
        (self.tag << 40) | ((index as u64 + 1) << 4)
    }

    pub fn handles_of(&self, wanted: impl Fn(&T) -> bool) -> Vec<Handle> {
        let wanted = |item: &Option<T>| item.as_ref().is_some_and(&wanted);
        let items = self.items.iter().enumerate();
        items.filter(|(_, item)| wanted(item)).map(|(index, _)| self.handle(index)).collect()
    }

    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let index = self.index(handle)?;
        let item = self.items[index].take()?;
        self.free.push(index);
        Some(item)
    }

    pub fn find(&self, handle: Handle) -> Option<&T> {
        self.items[self.index(handle)?].as_ref()
    }

    pub fn find_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let index = self.index(handle)?;
        self.items[index].as_mut()
    }

    pub fn get(&self, handle: Handle) -> Outcome<&T> {
        self.find(handle).ok_or(Code::INVALID_HANDLE)
    }

    pub fn get_mut(&mut self, handle: Handle) -> Outcome<&mut T> {
        self.find_mut(handle).ok_or(Code::INVALID_HANDLE)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut().flatten()
    }

    fn index(&self, handle: Handle) -> Option<usize> {
        if handle >> 40 != self.tag {
            return None;
        }
        let index = ((handle >> 4) & 0xF_FFFF_FFFF).checked_sub(1)? as usize;
        (index < self.items.len()).then_some(index)
    }
}
