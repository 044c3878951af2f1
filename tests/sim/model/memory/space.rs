//! One address range with a limited number of pages: a device's memory, or pinned memory.
//!
//! Sizes up to 1 MiB are packed at 512 B inside pages of 2 MiB; larger ones take whole pages. First
//! fit at the lowest address: freed memory is the next to be reused, as programs have come to
//! expect. Whole pages read zero when they are handed out; packed ranges keep old bytes.

use std::collections::BTreeMap;

use super::raw;
use super::share::Share;

pub const PAGE_BYTES: u64 = 2 << 20;
const PACKED_BYTES_MAX: u64 = 1 << 20;
const PACKED_UNIT: u64 = 512;

pub struct Space {
    pub base: u64,
    pub bytes: u64,
    /// Addresses from here on were never handed out.
    pub high_water: u64,
    pub pages_max: u64,
    pages_used: u64,
    /// Other processes that take pages of the same device.
    share: Option<Share>,
    free: BTreeMap<u64, u64>,
    packed: BTreeMap<u64, PackedPage>,
    /// Pages that other processes may have mapped, by their start: the file and their bytes.
    shared: BTreeMap<u64, (i32, u64)>,
    /// Bytes of the allocations that take whole pages.
    whole: BTreeMap<u64, u64>,
}

struct PackedPage {
    free: BTreeMap<u64, u64>,
    used_bytes: u64,
}

impl Space {
    pub fn new(address_bytes: u64, pages_max: u64) -> Space {
        let whole = raw::reserve(address_bytes).expect("address space for simulated memory");
        let base = whole.next_multiple_of(PAGE_BYTES);
        let bytes = (whole + address_bytes - base) / PAGE_BYTES * PAGE_BYTES;
        Space {
            base,
            bytes,
            high_water: base,
            pages_max,
            pages_used: 0,
            share: None,
            free: BTreeMap::from([(base, bytes)]),
            packed: BTreeMap::new(),
            shared: BTreeMap::new(),
            whole: BTreeMap::new(),
        }
    }

    pub fn shared(self, share: Option<Share>) -> Space {
        Space { share, ..self }
    }

    pub fn contains(&self, address: u64) -> bool {
        (self.base..self.base + self.bytes).contains(&address)
    }

    pub fn alloc(&mut self, bytes: u64) -> Option<u64> {
        let start = if bytes <= PACKED_BYTES_MAX {
            self.alloc_packed(bytes.max(1).next_multiple_of(PACKED_UNIT))
        } else {
            self.alloc_pages(bytes.checked_next_multiple_of(PAGE_BYTES)?)
        }?;
        self.high_water = self.high_water.max(start + bytes);
        Some(start)
    }

    pub fn free(&mut self, start: u64, bytes: u64) {
        if bytes <= PACKED_BYTES_MAX {
            self.free_packed(start, bytes.max(1).next_multiple_of(PACKED_UNIT));
        } else {
            self.free_pages(start, bytes.next_multiple_of(PAGE_BYTES));
        }
    }

    pub fn bytes_free(&self) -> u64 {
        self.pages_left() * PAGE_BYTES
    }

    /// Moves the pages of the allocation at this address to a file. Returns the file, start and
    /// bytes.
    pub fn share(&mut self, address: u64) -> Option<(i32, u64, u64)> {
        let (&start, &bytes) = self.whole.range(..=address).next_back()?;
        if let Some(&(file, bytes)) = self.shared.get(&start) {
            return Some((file, start, bytes));
        }
        let file = raw::create_shared(bytes)?;
        let kept = raw::read(start, bytes);
        raw::place(start, bytes, Some(file), 0);
        raw::write(start, &kept);
        self.shared.insert(start, (file, bytes));
        Some((file, start, bytes))
    }

    /// Takes pages that are counted here and mapped elsewhere.
    pub fn take_pages(&mut self, bytes: u64) -> bool {
        let _turn = self.share.as_ref().map(Share::turn);
        let pages = bytes.div_ceil(PAGE_BYTES);
        let fits = pages <= self.pages_left();
        if fits {
            self.use_pages(self.pages_used + pages);
        }
        fits
    }

    pub fn give_pages(&mut self, bytes: u64) {
        self.use_pages(self.pages_used - bytes.div_ceil(PAGE_BYTES));
    }

    fn pages_left(&self) -> u64 {
        let others = self.share.as_ref().map_or(0, Share::others);
        self.pages_max.saturating_sub(self.pages_used + others)
    }

    fn use_pages(&mut self, pages: u64) {
        self.pages_used = pages;
        if let Some(share) = &self.share {
            share.note(pages);
        }
    }

    fn alloc_pages(&mut self, bytes: u64) -> Option<u64> {
        let start = take_first_fit(&mut self.free, bytes)?;
        if !self.take_pages(bytes) {
            give(&mut self.free, start, bytes);
            return None;
        }
        self.whole.insert(start, bytes);
        Some(start)
    }

    /// Allocates addresses of whole pages, without memory.
    pub fn alloc_addresses(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let start = take_first_fit(&mut self.free, bytes)?;
        self.whole.insert(start, bytes);
        self.high_water = self.high_water.max(start + bytes);
        Some(start)
    }

    fn free_pages(&mut self, start: u64, bytes: u64) {
        self.give_pages(bytes);
        self.free_addresses(start, bytes);
    }

    /// Frees addresses of whole pages whose memory already serves elsewhere.
    pub fn free_addresses(&mut self, start: u64, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        self.whole.remove(&start);
        match self.shared.remove(&start) {
            // Others keep the file and its bytes.
            Some((file, bytes)) => {
                raw::place(start, bytes, None, 0);
                raw::close_shared(file);
            }
            None => raw::clear_pages(start, bytes),
        }
        give(&mut self.free, start, bytes);
    }

    fn alloc_packed(&mut self, bytes: u64) -> Option<u64> {
        for page in self.packed.values_mut() {
            if page.used_bytes + bytes > PAGE_BYTES {
                continue;
            }
            if let Some(start) = take_first_fit(&mut page.free, bytes) {
                page.used_bytes += bytes;
                return Some(start);
            }
        }
        let page = self.alloc_pages(PAGE_BYTES)?;
        let free = BTreeMap::from([(page + bytes, PAGE_BYTES - bytes)]);
        self.packed.insert(page, PackedPage { free, used_bytes: bytes });
        Some(page)
    }

    fn free_packed(&mut self, start: u64, bytes: u64) {
        let base = start / PAGE_BYTES * PAGE_BYTES;
        let page = self.packed.get_mut(&base).expect("a packed range lies in a packed page");
        give(&mut page.free, start, bytes);
        page.used_bytes -= bytes;
        if page.used_bytes == 0 {
            self.packed.remove(&base);
            self.free_pages(base, PAGE_BYTES);
        }
    }
}

fn take_first_fit(free: &mut BTreeMap<u64, u64>, bytes: u64) -> Option<u64> {
    let (start, length) = free.iter().find(|(_, length)| **length >= bytes)?;
    let (start, length) = (*start, *length);
    free.remove(&start);
    if length > bytes {
        free.insert(start + bytes, length - bytes);
    }
    Some(start)
}

fn give(free: &mut BTreeMap<u64, u64>, mut start: u64, mut bytes: u64) {
    if let Some((before, length)) = free.range(..start).next_back()
        && before + length == start
    {
        (start, bytes) = (*before, bytes + length);
    }
    if let Some(length) = free.remove(&(start + bytes)) {
        bytes += length;
    }
    free.insert(start, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_bytes_fill_three_pages_and_give_them_back() {
        let mut space = Space::new(64 << 20, 16);
        let all: Vec<u64> = (0..10_000).map(|_| space.alloc(1).unwrap()).collect();
        assert_eq!(all[1] - all[0], 512);
        assert_eq!(space.pages_used, 3);
        for start in all {
            space.free(start, 1);
        }
        assert_eq!((space.pages_used, space.free.len()), (0, 1));
    }

    #[test]
    fn pages_run_out_and_freed_ones_come_next() {
        let mut space = Space::new(64 << 20, 4);
        let first = space.alloc(2 * PAGE_BYTES).unwrap();
        let second = space.alloc(PAGE_BYTES + 1).unwrap();
        assert_eq!(second % PAGE_BYTES, 0);
        assert_eq!(space.alloc(1), None);
        space.free(first, 2 * PAGE_BYTES);
        assert_eq!(space.alloc(PAGE_BYTES * 2), Some(first));
    }
}
