//! All small programs, theme by theme, and many long random ones, on both sides of `world`.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::native::{ELSEWHERE, LEGACY};
use super::ours::Setting;
use super::world::{CAPTURING, Op, Stop, World};
use super::{std, tier};
use crate::order::route::Mode;

/// Configurations of our rules; the first is the one that most programs meet.
pub const SETTINGS: [Setting; 6] = [
    Setting { mode: Mode::Ordered, elision: true, barrier_calls: true, promised: false },
    Setting { mode: Mode::Ordered, elision: false, barrier_calls: true, promised: false },
    Setting { mode: Mode::Ordered, elision: true, barrier_calls: false, promised: false },
    Setting { mode: Mode::Strict, elision: true, barrier_calls: true, promised: false },
    Setting { mode: Mode::Relaxed, elision: true, barrier_calls: true, promised: false },
    Setting { mode: Mode::Relaxed, elision: true, barrier_calls: false, promised: false },
];

/// An alphabet, and the operations with which every program over it starts.
pub struct Theme {
    pub name: &'static str,
    start: &'static [Op],
    alphabet: &'static [Op],
    length: usize,
}

const A: usize = 1;
const B: usize = 2;
const MINE: usize = 4;
const P: usize = 0;
const Q: usize = 1;

const fn write(stream: usize, var: usize) -> Op {
    Op::Launch { stream, var, write: true }
}

const fn read(stream: usize, var: usize) -> Op {
    Op::Launch { stream, var, write: false }
}

const fn malloc(var: usize) -> Op {
    Op::Malloc { var }
}

const fn free(var: usize) -> Op {
    Op::Free { var, thread: 0 }
}

pub const THEMES: [Theme; 8] = [
    Theme {
        name: "streams",
        start: &[malloc(P), malloc(Q)],
        alphabet: &[
            malloc(P),
            free(P),
            free(Q),
            write(A, P),
            read(B, P),
            write(B, P),
            write(LEGACY, P),
            write(MINE, P),
            Op::Recreate { stream: B },
            Op::SyncStream { stream: B },
        ],
        length: 6,
    },
    Theme {
        name: "visibility",
        start: &[malloc(P), malloc(Q)],
        alphabet: &[
            malloc(Q),
            free(Q),
            write(A, P),
            Op::LaunchPinned { stream: A },
            Op::LaunchIndirect { stream: B },
            Op::LaunchCollective { stream: B },
            Op::MapPinned,
            Op::CopyOut { stream: A, var: P },
            Op::CopyIn { stream: B, var: P },
            Op::HostRead,
            Op::HostWrite,
        ],
        length: 6,
    },
    Theme {
        name: "stream-ordered",
        start: &[],
        alphabet: &[
            malloc(Q),
            free(P),
            free(Q),
            Op::MallocAsync { var: P, stream: A },
            Op::MallocAsync { var: P, stream: B },
            Op::FreeAsync { var: P, stream: A },
            Op::FreeAsync { var: Q, stream: B },
            write(A, P),
            write(B, P),
            write(B, Q),
            Op::Record { event: 0, stream: A },
            Op::WaitEvent { stream: B, event: 0 },
            Op::Recreate { stream: B },
            Op::TimePasses,
        ],
        length: 6,
    },
    Theme {
        name: "legacy stream",
        start: &[malloc(P)],
        alphabet: &[
            free(P),
            Op::MallocAsync { var: Q, stream: A },
            Op::FreeAsync { var: Q, stream: A },
            Op::FreeAsync { var: Q, stream: LEGACY },
            write(A, P),
            write(B, P),
            Op::LaunchPinned { stream: LEGACY },
            Op::LaunchPinned { stream: A },
            Op::SyncStream { stream: A },
            Op::HostRead,
            Op::HostWrite,
        ],
        length: 6,
    },
    Theme {
        name: "captures",
        start: &[malloc(P), malloc(Q)],
        alphabet: &[
            malloc(Q),
            Op::Free { var: Q, thread: 1 },
            Op::MallocAsync { var: 2, stream: A },
            Op::FreeAsync { var: 2, stream: A },
            Op::Free { var: 2, thread: 1 },
            write(A, Q),
            write(CAPTURING, P),
            Op::BeginCapture,
            Op::EndCapture,
            Op::LaunchGraph { stream: A },
            Op::HostRead,
        ],
        length: 7,
    },
    Theme {
        name: "unseen work",
        start: &[malloc(P), malloc(Q)],
        alphabet: &[
            malloc(P),
            free(P),
            free(Q),
            Op::FreeAsync { var: P, stream: A },
            Op::MallocAsync { var: P, stream: B },
            write(B, P),
            Op::Unseen { stream: A, var: P },
            Op::SyncContext,
            Op::HostRead,
        ],
        length: 6,
    },
    Theme {
        name: "second context",
        start: &[malloc(P), malloc(Q)],
        alphabet: &[
            malloc(P),
            free(P),
            free(Q),
            write(A, P),
            write(ELSEWHERE, P),
            Op::Record { event: 0, stream: A },
            Op::WaitEvent { stream: ELSEWHERE, event: 0 },
            Op::Record { event: 1, stream: ELSEWHERE },
            Op::WaitEvent { stream: A, event: 1 },
            Op::SyncContext,
        ],
        length: 6,
    },
    Theme {
        name: "debts",
        start: &[malloc(P), malloc(Q)],
        alphabet: &[
            free(P),
            Op::Free { var: Q, thread: 1 },
            write(A, P),
            Op::LaunchTexture { stream: A },
            Op::LaunchTexture { stream: B },
            Op::DestroyTexture,
            Op::Record { event: 0, stream: A },
            Op::Query { event: 0, thread: 0 },
            Op::Query { event: 0, thread: 1 },
            Op::SyncContext,
        ],
        length: 6,
    },
];

/// Programs that order their contexts themselves: by an event that the first context records when
/// the second is about to use its memory, and by any means in the other direction.
pub const PROMISED: Theme = Theme {
    name: "contexts ordered by events",
    start: &[malloc(P), malloc(Q)],
    alphabet: &[
        malloc(P),
        free(P),
        free(Q),
        Op::FreeAsync { var: P, stream: ELSEWHERE },
        write(A, P),
        write(B, P),
        Op::LaunchBehind { stream: A, var: P },
        Op::Record { event: 1, stream: ELSEWHERE },
        Op::WaitEvent { stream: A, event: 1 },
        Op::SyncContext,
    ],
    length: 6,
};

/// Summary of the programs that were run.
#[derive(Default, Debug)]
pub struct Tally {
    /// Number of programs that are valid on the plain driver, each counted once with all its
    /// prefixes.
    pub valid: u64,
    pub violation: Option<String>,
}

impl Theme {
    /// Runs all programs of the theme, `longer` operations more than usual.
    pub fn run(&self, setting: Setting, longer: usize) -> Tally {
        let mut world = World::new(setting);
        for &op in self.start {
            assert!(world.step(op).is_ok(), "{}: the start is invalid", self.name);
        }
        let mut tally = Tally::default();
        let mut path = vec![];
        self.extend(&world, self.length + longer, &mut path, &mut tally);
        tally
    }

    fn extend(&self, world: &World, left: usize, path: &mut Vec<Op>, tally: &mut Tally) {
        for &op in self.alphabet {
            if tally.violation.is_some() {
                return;
            }
            let mut next = world.copy();
            path.push(op);
            match next.step(op) {
                Err(Stop::Invalid) => {}
                Err(Stop::Violation(what)) => {
                    tally.violation = Some(format!("{}: {path:?}: {what}", self.name));
                }
                Ok(()) => {
                    tally.valid += 1;
                    if left > 1 {
                        self.extend(&next, left - 1, path, tally);
                    }
                }
            }
            path.pop();
        }
    }
}

/// Runs random programs over all themes at once, leaving out invalid calls.
pub fn random(setting: Setting, count: u64, seed: u64) -> Tally {
    let mut random = Random(seed);
    let mut tally = Tally::default();
    for _ in 0..count {
        let mut world = World::new(setting);
        let mut path: Vec<Op> = vec![];
        for _ in 0..RANDOM_OPS {
            let theme = &THEMES[random.below(THEMES.len())];
            let op = theme.alphabet[random.below(theme.alphabet.len())];
            let mut next = world.copy();
            match next.step(op) {
                Err(Stop::Invalid) => continue,
                Err(Stop::Violation(what)) => {
                    path.push(op);
                    tally.violation = Some(format!("random: {path:?}: {what}"));
                    return tally;
                }
                Ok(()) => {
                    path.push(op);
                    world = next;
                }
            }
        }
        tally.valid += 1;
    }
    tally
}

const RANDOM_OPS: usize = 40;

/// A xorshift64* generator: good enough for choosing.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// Returns the scale of the runs: `ORDER_TEST_SCALE`, 1 by default; 100 takes minutes in a release
/// build.
pub fn scale() -> u64 {
    std::env::var("ORDER_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn all_small_programs_see_no_difference() {
    let longer = usize::from(scale() > 1);
    let mut total = 0;
    for theme in &THEMES {
        for setting in SETTINGS {
            let tally = theme.run(setting, longer);
            std::println!("{} {setting:?}: {tally:?}", theme.name);
            assert_eq!(tally.violation, None, "{setting:?}");
            total += tally.valid;
        }
    }
    std::println!("small programs: {total}");
    assert!(total > 100_000, "explored too little");
}

#[test]
fn programs_that_order_their_contexts_see_no_difference() {
    for setting in SETTINGS.map(promised) {
        let tally = PROMISED.run(setting, 0);
        std::println!("{} {setting:?}: {tally:?}", PROMISED.name);
        assert_eq!(tally.violation, None, "{setting:?}");
        assert!(tally.valid > 1_000, "explored too little");
    }
}

/// The model must notice a broken promise; otherwise the option would have no cost.
#[test]
fn a_promise_that_is_not_kept_shows() {
    let theme = THEMES.iter().find(|theme| theme.name == "second context").expect("a theme");
    assert!(theme.run(promised(SETTINGS[0]), 0).violation.is_some());
}

pub fn promised(setting: Setting) -> Setting {
    Setting { promised: true, ..setting }
}

#[test]
fn random_programs_see_no_difference() {
    let mut total = 0;
    for (at, setting) in SETTINGS.into_iter().enumerate() {
        let tally =
            random(setting, tier::count(10_000, 50_000) * scale(), 0x1234_5678_9abc + at as u64);
        assert_eq!(tally.violation, None, "{setting:?}");
        total += tally.valid;
    }
    std::println!("random programs: {total}");
}
