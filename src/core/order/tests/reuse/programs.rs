//! All small programs, theme by theme, many long random ones, and both with each rule switched off.

use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::super::programs::scale;
use super::super::{std, tier};
use super::graph::Promise;
use super::world::{Op, Stop, World};

const P: usize = 0;
const Q: usize = 1;
const E: usize = 0;
const F: usize = 1;

const fn alloc(var: usize) -> Op {
    Op::Alloc { var, stream: None }
}

const fn free(var: usize) -> Op {
    Op::Free { var, stream: None }
}

const fn alloc_on(var: usize, stream: usize) -> Op {
    Op::Alloc { var, stream: Some(stream) }
}

const fn free_on(var: usize, stream: usize) -> Op {
    Op::Free { var, stream: Some(stream) }
}

const fn kernel(stream: usize, var: usize) -> Op {
    Op::Kernel { stream, var, promise: None }
}

const fn early(stream: usize, var: usize) -> Op {
    Op::Kernel { stream, var, promise: Some(Promise::EARLY) }
}

const fn record(event: usize, stream: usize) -> Op {
    Op::Record { event, stream }
}

const fn wait(stream: usize, event: usize) -> Op {
    Op::Wait { stream, event }
}

const fn set(stream: usize, event: usize) -> Op {
    Op::Set { stream, event }
}

/// An alphabet, and the operations with which every program over it starts.
struct Theme {
    pub name: &'static str,
    start: &'static [Op],
    alphabet: &'static [Op],
    length: usize,
}

const THEMES: [Theme; 9] = [
    Theme {
        name: "everywhere",
        start: &[alloc(P), record(E, 0)],
        alphabet: &[
            alloc(P),
            alloc(Q),
            free(P),
            kernel(0, P),
            kernel(1, P),
            kernel(0, Q),
            kernel(1, Q),
            record(E, 0),
            wait(1, E),
            record(F, 1),
            wait(0, F),
        ],
        length: 7,
    },
    Theme {
        name: "three streams",
        start: &[alloc(P), record(E, 0), wait(1, E), wait(2, E)],
        alphabet: &[
            alloc(Q),
            free(P),
            kernel(0, P),
            kernel(1, P),
            kernel(2, P),
            kernel(0, Q),
            kernel(2, Q),
            record(E, 1),
            wait(0, E),
            record(F, 2),
            wait(0, F),
            wait(1, F),
        ],
        length: 7,
    },
    Theme {
        name: "in the order of streams",
        start: &[alloc_on(P, 0), record(E, 0), wait(1, E)],
        alphabet: &[
            alloc_on(Q, 0),
            alloc_on(Q, 1),
            alloc(Q),
            free_on(P, 0),
            free_on(P, 1),
            free_on(Q, 1),
            kernel(0, P),
            kernel(1, P),
            kernel(0, Q),
            kernel(1, Q),
            record(F, 1),
            wait(0, F),
        ],
        length: 7,
    },
    Theme {
        name: "early starts",
        start: &[alloc(P), kernel(0, P)],
        alphabet: &[
            alloc(P),
            alloc(Q),
            alloc_on(Q, 0),
            free(P),
            free(Q),
            kernel(0, P),
            early(0, P),
            kernel(0, Q),
            early(0, Q),
            Op::Kernel { stream: 0, var: Q, promise: Some(Promise::HIDDEN) },
            Op::SetBy { stream: 0, event: E, promise: Promise::EARLY },
            record(E, 0),
        ],
        length: 7,
    },
    Theme {
        name: "edges that promise nothing",
        start: &[alloc(P), kernel(0, P)],
        alphabet: &[
            alloc(Q),
            free(P),
            kernel(0, P),
            kernel(0, Q),
            // No launch makes such an edge, but setting terminals may.
            Op::SetBy { stream: 0, event: E, promise: Promise::NONE },
            record(E, 0),
            record(F, 0),
            wait(0, F),
        ],
        length: 7,
    },
    Theme {
        name: "late joins",
        start: &[alloc(P), record(E, 0)],
        alphabet: &[
            alloc(P),
            alloc(Q),
            free(P),
            kernel(0, P),
            kernel(1, P),
            early(1, P),
            kernel(2, Q),
            wait(1, E),
            wait(2, E),
            record(F, 1),
            wait(0, F),
        ],
        length: 7,
    },
    Theme {
        name: "terminals set",
        start: &[alloc(P), record(E, 0), kernel(0, P)],
        alphabet: &[
            alloc(Q),
            alloc_on(Q, 0),
            free(P),
            free_on(Q, 0),
            kernel(0, P),
            kernel(0, Q),
            early(0, Q),
            record(F, 0),
            set(0, E),
            set(0, F),
            wait(0, F),
        ],
        length: 7,
    },
    Theme {
        name: "streams that leave",
        start: &[alloc(P), record(E, 0), wait(1, E)],
        alphabet: &[
            alloc(Q),
            free(P),
            kernel(0, Q),
            kernel(1, P),
            kernel(1, Q),
            record(F, 1),
            wait(0, F),
            wait(1, E),
            Op::Destroy { stream: 1 },
        ],
        length: 7,
    },
    Theme {
        name: "by hand",
        start: &[alloc(P), kernel(0, P)],
        alphabet: &[
            alloc(Q),
            free(P),
            kernel(0, P),
            kernel(0, Q),
            Op::ByHand { stream: 0, var: P, event: E },
            set(0, E),
            wait(0, E),
        ],
        length: 6,
    },
];

#[derive(Default, Debug)]
struct Tally {
    valid: u64,
    /// Number of allocations that got a block again.
    reused: u64,
    violation: Option<String>,
}

impl Theme {
    fn run(&self, longer: usize) -> Tally {
        let mut world = World::new();
        world.thorough = true;
        for op in self.start {
            world.step(*op).expect("the start is valid");
        }
        let mut tally = Tally::default();
        self.extend(&world, self.length + longer, &mut vec![], &mut tally);
        tally
    }

    fn extend(&self, world: &World, left: usize, path: &mut Vec<Op>, tally: &mut Tally) {
        for &op in self.alphabet {
            if tally.violation.is_some() {
                return;
            }
            let mut next = world.clone();
            path.push(op);
            match next.step(op) {
                Err(Stop::Invalid) => {}
                Err(Stop::Violation(what)) => {
                    tally.violation = Some(format!("{}: {path:?}: {what}", self.name));
                }
                Ok(()) => {
                    tally.valid += 1;
                    tally.reused += next.reused_count - world.reused_count;
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
fn random(count: u64, seed: u64) -> Tally {
    let mut random = Random(seed);
    let mut tally = Tally::default();
    for _ in 0..count {
        let mut world = World::new();
        let mut path: Vec<Op> = vec![];
        // Each program has few themes, so that not all become a capture that is opaque from some
        // point on.
        let themes: Vec<&Theme> = (0..3).map(|_| &THEMES[random.below(THEMES.len())]).collect();
        for _ in 0..RANDOM_OPS {
            let theme = themes[random.below(themes.len())];
            let op = theme.alphabet[random.below(theme.alphabet.len())];
            let mut next = world.clone();
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
        tally.reused += world.reused_count;
    }
    tally
}

const RANDOM_OPS: usize = 60;

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

#[test]
fn small_captures_reuse_soundly() {
    let longer = usize::from(scale() > 1);
    std::thread::scope(|scope| {
        for theme in &THEMES {
            scope.spawn(move || {
                let tally = theme.run(longer);
                std::println!("{}: {tally:?}", theme.name);
                assert_eq!(tally.violation, None);
                assert!(tally.reused > 0 && tally.valid > 1_000, "{}: too little", theme.name);
            });
        }
    });
}

#[test]
fn random_captures_reuse_soundly() {
    let tally = random(tier::count(5_000, 20_000) * scale(), 0x1234_5678_9abc);
    std::println!("random captures: {tally:?}");
    assert_eq!(tally.violation, None);
    assert!(tally.reused > tally.valid / 2, "most programs reuse nothing");
}

/// Checks for each rule that its theme shows it to be needed.
#[cfg(feature = "break-rules")]
#[test]
fn each_rule_of_captures_is_needed() {
    use super::super::{in_own_process, with_broken};
    use crate::rules::Rule;
    const RULES: [(Rule, &str); 11] = [
        (Rule::CaptureFreeMarks, "everywhere"),
        (Rule::CaptureFreeMarksEveryStream, "three streams"),
        (Rule::CaptureDroppedNodesMark, "streams that leave"),
        (Rule::CaptureLooseNodesMark, "early starts"),
        (Rule::CaptureReuseForEveryStream, "everywhere"),
        (Rule::CaptureEarlyIsNotComplete, "early starts"),
        (Rule::CaptureReuseNotEarly, "early starts"),
        (Rule::CaptureReuseIsMarked, "in the order of streams"),
        (Rule::CaptureEdgesAreAdded, "late joins"),
        (Rule::CaptureReachAdvances, "terminals set"),
        (Rule::CaptureOpaqueWaits, "by hand"),
    ];
    let test = "order::tests::reuse::programs::each_rule_of_captures_is_needed";
    in_own_process(test, || {
        for (rule, name) in RULES {
            let theme = THEMES.iter().find(|theme| theme.name == name).expect("a theme");
            let found = with_broken(rule.name(), || theme.run(0).violation);
            std::println!("{}: {found:?}", rule.name());
            assert!(found.is_some(), "{} is not caught by {name}", rule.name());
        }
    });
}
