//! Effects of work on bytes: the ranges it touches, and the change itself.
//!
//! If a range lies outside live memory, the operation is reported and has no effect: the bytes
//! may not even be mapped.

use std::sync::atomic::Ordering::Relaxed;

use super::kernels::{Builtin, Launch};
use super::op::{CopyWork, FillWork, Work};
use crate::model::memory::allocations::Memory;
use crate::model::memory::raw;
use crate::model::races::shadow::{Access, AccessKind};

impl Work {
    pub fn accesses(&self, memory: &Memory) -> Vec<Access> {
        let flag = |start, bytes, kind| vec![Access { start, bytes, kind }];
        match self {
            Work::Marker | Work::Record | Work::TimedRecord | Work::Host(_) => Vec::new(),
            Work::Kernel(launch) => launch.accesses(|address| memory.read_word(address, 8)),
            Work::Copy(copy) => copy.accesses(),
            Work::Fill(fill) => fill.accesses(),
            Work::WaitValue(wait) => flag(wait.address, wait.bytes, AccessKind::AtomicRead),
            Work::WriteValue(write) => flag(write.address, write.bytes, AccessKind::AtomicWrite),
            Work::Birth { base, allocation } => match memory.range_of(*base, *allocation) {
                Some((start, bytes)) => flag(start, bytes, AccessKind::Write),
                None => Vec::new(),
            },
            Work::Release { allocation } | Work::Give { allocation } => {
                match memory.dying_range(*allocation) {
                    Some((start, bytes)) => flag(start, bytes, AccessKind::Write),
                    None => Vec::new(),
                }
            }
        }
    }

    /// Changes memory. The caller has checked that every range of `accesses` is live.
    pub fn apply(&self, memory: &Memory) {
        match self {
            Work::Kernel(launch) => apply_kernel(launch, memory),
            Work::Copy(copy) => apply_copy(copy),
            Work::Fill(fill) => apply_fill(fill),
            Work::WriteValue(flag) => {
                raw::fill(
                    flag.address,
                    flag.bytes,
                    &flag.value.to_le_bytes()[..flag.bytes as usize],
                );
            }
            Work::Marker
            | Work::Record
            | Work::TimedRecord
            | Work::Host(_)
            | Work::WaitValue(_) => {}
            Work::Birth { .. } | Work::Release { .. } | Work::Give { .. } => {}
        }
    }
}

fn apply_kernel(launch: &Launch, memory: &Memory) {
    let arg = |index| launch.arg(index);
    let put = |address: u64, value: u64| raw::fill(address, 8, &value.to_le_bytes());
    match launch.builtin {
        Builtin::Fill | Builtin::LateFill => {
            raw::fill(arg(0), arg(1) / 8 * 8, &arg(2).to_le_bytes());
        }
        Builtin::IndirectFill => {
            let word = |offset| memory.read_word(arg(0) + offset, 8).unwrap_or(0);
            raw::fill(word(0), word(8) / 8 * 8, &word(16).to_le_bytes());
        }
        Builtin::FillAt => put(arg(0).wrapping_add(arg(1)), arg(2)),
        Builtin::FillPacked => put(arg(0), arg(1)),
        Builtin::Fetch | Builtin::FetchTile | Builtin::FetchBound => raw::copy(arg(0), arg(1), 8),
        Builtin::Copy => raw::copy(arg(0), arg(1), arg(2) / 8 * 8),
        Builtin::Add => {
            let (Some(dst), Some(src)) =
                (raw::words(arg(0), arg(2) / 8), raw::words(arg(1), arg(2) / 8))
            else {
                return;
            };
            for (dst, src) in dst.iter().zip(src) {
                dst.store(dst.load(Relaxed).wrapping_add(src.load(Relaxed)), Relaxed);
            }
        }
        Builtin::Check => {
            let Some(words) = raw::words(arg(0), arg(1) / 8) else { return };
            let wrong = words.iter().filter(|word| word.load(Relaxed) != arg(2)).count() as u64;
            put(arg(3), memory.read_word(arg(3), 8).unwrap_or(0).wrapping_add(wrong));
        }
        Builtin::Set => put(arg(0), arg(1)),
        Builtin::Delay | Builtin::Say | Builtin::Spin | Builtin::IndirectSpin => {}
        Builtin::Fault | Builtin::Opaque => {}
    }
}

fn apply_copy(copy: &CopyWork) {
    let (rows, bytes) = copy.rows();
    for (index, (dst, src)) in rows.into_iter().enumerate() {
        match &copy.staged {
            Some(staged) => raw::write(dst, &staged[index * bytes as usize..][..bytes as usize]),
            None => raw::copy(dst, src, bytes),
        }
    }
}

fn apply_fill(fill: &FillWork) {
    let element = &fill.value.to_le_bytes()[..fill.element_bytes as usize];
    for row in 0..fill.height {
        raw::fill(fill.dst + row * fill.pitch, fill.width * fill.element_bytes, element);
    }
}

impl CopyWork {
    fn accesses(&self) -> Vec<Access> {
        let (rows, bytes) = self.rows();
        let mut found = Vec::with_capacity(rows.len() * 2);
        for (dst, src) in rows {
            if self.staged.is_none() && !self.src_pageable {
                found.push(Access { start: src, bytes, kind: AccessKind::Read });
            }
            if !self.dst_pageable {
                found.push(Access { start: dst, bytes, kind: AccessKind::Write });
            }
        }
        found
    }
}

impl FillWork {
    fn accesses(&self) -> Vec<Access> {
        let bytes = self.width * self.element_bytes;
        let write = |start, bytes| Access { start, bytes, kind: AccessKind::Write };
        if self.height == 1 || self.pitch == bytes {
            return vec![write(self.dst, bytes * self.height)];
        }
        (0..self.height).map(|y| write(self.dst + y * self.pitch, bytes)).collect()
    }
}
