//! Report of the calls and errors of the process, written to `SIM_REPORT` at its end.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::model::races::shadow::{Race, Source};

#[derive(Default)]
pub struct Report {
    pub calls: BTreeMap<&'static str, u64>,
    pub races_count: u64,
    problems: Vec<String>,
    problems_dropped: u64,
    seen_pairs: HashSet<(&'static str, &'static str, u64, u64, u64)>,
}

impl Report {
    /// Adds one line for each pair of operations and place, and counts all.
    pub fn race(&mut self, race: &Race) {
        self.races_count += 1;
        let Race { first, second, start, end } = race;
        let Source { name, stream, .. } = *first;
        if self.seen_pairs.insert((name, second.name, stream, second.stream, *start)) {
            self.problem(format!("sim: race: {first} / {second} bytes [{start:#x}, {end:#x})"));
        }
    }

    pub fn problem(&mut self, line: String) {
        if self.problems.len() < PROBLEM_LINES_MAX {
            self.problems.push(line);
        } else {
            self.problems_dropped += 1;
        }
    }

    pub fn text(&self, now_ns: u64, leaks: &[String]) -> String {
        let mut text = String::new();
        for line in self.problems.iter().chain(leaks) {
            writeln!(text, "{line}").expect("writing to a string");
        }
        if self.problems_dropped > 0 {
            writeln!(text, "dropped {}", self.problems_dropped).expect("writing to a string");
        }
        for (name, count) in &self.calls {
            writeln!(text, "call {name} {count}").expect("writing to a string");
        }
        writeln!(text, "races {}", self.races_count).expect("writing to a string");
        writeln!(text, "virtual_ns {now_ns}").expect("writing to a string");
        text
    }
}

const PROBLEM_LINES_MAX: usize = 1_000;
