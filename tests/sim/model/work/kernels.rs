//! The built-in kernels. `tests/programs/kernels.cu` has the same ones for a real GPU.
//!
//! Every parameter is one 8-byte word. All effects happen at the end of the delay, the worst case
//! for a program that forgot to wait.

use crate::model::races::shadow::{Access, AccessKind};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builtin {
    Fill,
    LateFill,
    IndirectFill,
    /// Fills one word at a base plus an offset, as iterators and 1-based arrays do.
    FillAt,
    /// Fills one word like `FillAt` without an offset. Its address is at an unaligned place of a
    /// packed struct.
    FillPacked,
    /// Copies one word through a texture object, whose handle the launch has replaced.
    Fetch,
    /// Copies one word through a tensor map, which the launch has replaced by its address.
    FetchTile,
    /// Copies one word through the texture reference of its module, whose address the launch has
    /// added.
    FetchBound,
    Copy,
    Add,
    Check,
    Delay,
    /// Prints a number, as `printf` on a device.
    Say,
    Spin,
    /// Spins on a word whose address is in memory.
    IndirectSpin,
    Set,
    Fault,
    /// An unknown kernel of the program: it takes time, and no access is modelled.
    Opaque,
}

#[derive(Clone, PartialEq)]
pub struct Launch {
    pub builtin: Builtin,
    pub args: Vec<u64>,
}

impl Builtin {
    pub fn from_name(name: &str) -> Option<Builtin> {
        BUILTINS.iter().find(|(known, _, _)| *known == name).map(|(_, builtin, _)| *builtin)
    }

    pub fn name(self) -> &'static str {
        let found = BUILTINS.iter().find(|(_, builtin, _)| *builtin == self);
        found.map_or("kernel", |(name, _, _)| name)
    }

    pub fn parameter_count(self) -> usize {
        BUILTINS.iter().find(|(_, builtin, _)| *builtin == self).map_or(0, |(_, _, count)| *count)
    }
}

const BUILTINS: &[(&str, Builtin, usize)] = &[
    ("fill", Builtin::Fill, 4),
    ("late_fill", Builtin::LateFill, 4),
    ("indirect_fill", Builtin::IndirectFill, 2),
    ("fill_at", Builtin::FillAt, 4),
    ("fill_packed", Builtin::FillPacked, 3),
    ("fill_in_table", Builtin::FillPacked, 3),
    ("fetch", Builtin::Fetch, 3),
    ("fetch_tile", Builtin::FetchTile, 3),
    ("fetch_bound", Builtin::FetchBound, 2),
    ("copy", Builtin::Copy, 4),
    ("add", Builtin::Add, 4),
    ("check", Builtin::Check, 5),
    ("delay", Builtin::Delay, 1),
    ("say", Builtin::Say, 2),
    ("spin", Builtin::Spin, 2),
    ("indirect_spin", Builtin::IndirectSpin, 2),
    ("set", Builtin::Set, 2),
    ("fault", Builtin::Fault, 0),
];

impl Launch {
    pub fn arg(&self, index: usize) -> u64 {
        self.args.get(index).copied().unwrap_or(0)
    }

    pub fn delay_ns(&self) -> u64 {
        match self.builtin {
            Builtin::Fill | Builtin::LateFill | Builtin::Copy | Builtin::Add => self.arg(3),
            Builtin::FillAt => self.arg(3),
            Builtin::FillPacked | Builtin::Fetch | Builtin::FetchTile | Builtin::FetchBound => {
                self.arg(2)
            }
            Builtin::Check => self.arg(4),
            Builtin::IndirectFill => self.arg(1),
            Builtin::Delay => self.arg(0),
            Builtin::Say => self.arg(1),
            Builtin::Spin | Builtin::IndirectSpin | Builtin::Set => 0,
            Builtin::Fault | Builtin::Opaque => 0,
        }
    }

    /// Returns the byte ranges that the kernel touches. `read` reads memory, for the kernel whose
    /// target is in memory; it returns `None` outside of memory.
    pub fn accesses(&self, read: impl Fn(u64) -> Option<u64>) -> Vec<Access> {
        let range = |start, bytes, kind| Access { start, bytes, kind };
        let whole_words = |bytes: u64| bytes / 8 * 8;
        match self.builtin {
            Builtin::Fill | Builtin::LateFill => {
                vec![range(self.arg(0), whole_words(self.arg(1)), AccessKind::Write)]
            }
            Builtin::FillAt => {
                vec![range(self.arg(0).wrapping_add(self.arg(1)), 8, AccessKind::Write)]
            }
            Builtin::FillPacked => vec![range(self.arg(0), 8, AccessKind::Write)],
            Builtin::Fetch | Builtin::FetchTile | Builtin::FetchBound => vec![
                range(self.arg(1), 8, AccessKind::Read),
                range(self.arg(0), 8, AccessKind::Write),
            ],
            Builtin::Copy | Builtin::Add => {
                let bytes = whole_words(self.arg(2));
                vec![
                    range(self.arg(1), bytes, AccessKind::Read),
                    range(self.arg(0), bytes, AccessKind::Write),
                ]
            }
            Builtin::Check => vec![
                range(self.arg(0), whole_words(self.arg(1)), AccessKind::Read),
                range(self.arg(3), 8, AccessKind::Write),
            ],
            Builtin::IndirectFill => {
                let place = self.arg(0);
                let mut found = vec![range(place, 24, AccessKind::Read)];
                if let (Some(start), Some(bytes)) = (read(place), read(place + 8)) {
                    found.push(range(start, whole_words(bytes), AccessKind::Write));
                }
                found
            }
            Builtin::Spin => vec![range(self.arg(0), 8, AccessKind::AtomicRead)],
            Builtin::IndirectSpin => {
                let word = read(self.arg(0)).map(|word| range(word, 8, AccessKind::AtomicRead));
                [range(self.arg(0), 8, AccessKind::Read)].into_iter().chain(word).collect()
            }
            Builtin::Set => vec![range(self.arg(0), 8, AccessKind::AtomicWrite)],
            Builtin::Delay | Builtin::Say | Builtin::Fault | Builtin::Opaque => Vec::new(),
        }
    }
}
