//! Shrinks a failing program to as few lines as still fail in the same way.

use std::time::Instant;

use crate::compare::Finding;
use crate::grammar::{Line, Program};
use crate::run::Machine;

/// Used in place of settings: the reason why a program is not valid.
pub const NATIVE: &str = "native";

pub struct Shrinker<'a> {
    pub machine: &'a Machine,
    pub conf: &'a str,
    pub kind: &'a str,
    /// How often a program is tried: what several threads do differs from run to run.
    pub tries: usize,
    /// Time at which shrinking stops with its best result.
    pub until: Instant,
}

impl Shrinker<'_> {
    /// Returns the finding if the program is valid and shows it.
    pub fn fails(&mut self, program: &Program) -> Option<Finding> {
        if self.conf == NATIVE {
            let why = self.machine.baseline(program, false).err()?;
            let kind = crate::compare::without_numbers(&why);
            let same = kind == self.kind;
            return same.then(|| Finding { conf: NATIVE.into(), kind, detail: why });
        }
        let relaxed = self.conf.contains("relaxed");
        for _ in 0..self.tries {
            let baseline = self.machine.baseline(program, relaxed).ok()?;
            let found = self.machine.judge(program, &baseline, self.conf)?;
            let same = found.into_iter().find(|finding| finding.kind == self.kind);
            if same.is_some() {
                return same;
            }
        }
        None
    }

    fn is_over(&self) -> bool {
        Instant::now() > self.until || self.machine.ending.has_come()
    }

    pub fn shrink(&mut self, program: &Program) -> Program {
        let mut best = program.clone();
        let threads: Vec<u8> = (1..crate::grammar::THREADS_MAX as u8).collect();
        for thread in threads {
            let lines = best.lines.iter().filter(|line| line.thread != thread).cloned().collect();
            self.try_lines(&mut best, lines);
        }
        loop {
            let before = best.lines.len();
            let mut piece = before.div_ceil(2);
            while piece > 0 {
                self.drop_pieces(&mut best, piece);
                piece /= 2;
            }
            if best.lines.len() == before || self.is_over() {
                break;
            }
        }
        self.make_numbers_small(&mut best);
        best
    }

    /// Drops pieces from the end to the start: the failure is at the end, and earlier lines matter
    /// less.
    fn drop_pieces(&mut self, best: &mut Program, piece: usize) {
        let mut end = best.lines.len();
        while end > 0 && !self.is_over() {
            let start = end.saturating_sub(piece);
            let mut lines = best.lines.clone();
            lines.drain(start..end);
            self.try_lines(best, lines);
            end = start.min(best.lines.len());
        }
    }

    fn try_lines(&mut self, best: &mut Program, lines: Vec<Line>) -> bool {
        if lines.len() == best.lines.len() && lines == best.lines {
            return false;
        }
        let candidate = Program { lines, ..best.clone() };
        let fails = self.fails(&candidate).is_some();
        if fails {
            *best = candidate;
        }
        fails
    }

    fn make_numbers_small(&mut self, best: &mut Program) {
        for index in 0..best.lines.len() {
            for (place, name) in best.lines[index].op.arguments().iter().enumerate() {
                let least = match *name {
                    "delay" | "how" | "priority" | "flags" => 0,
                    _ => continue,
                };
                let mut lines = best.lines.clone();
                lines[index].args[place] = least;
                if !self.is_over() {
                    self.try_lines(best, lines);
                }
            }
        }
    }
}
