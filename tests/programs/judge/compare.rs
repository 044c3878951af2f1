//! Which lines are compared, and how two runs differ.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::grammar::{Op, Program};
use crate::log::{BY_CHANCE, Record, Seen};
use crate::run::Ran;

/// Results of a program without the library, as far as they do not depend on how long its kernels
/// take.
#[derive(Clone)]
pub struct Native {
    pub seen: Seen,
    /// Lines on which all runs without the library agree.
    pub counted: BTreeSet<usize>,
    pub stdout: String,
}

/// One way in which a run under the library differed from the run without it.
#[derive(Clone, Debug)]
pub struct Finding {
    pub conf: String,
    /// The part that findings of one cause share: no line numbers, no addresses.
    pub kind: String,
    pub detail: String,
}

const NOT_READY: i32 = 600;
const NOT_IN_CAPTURES: i32 = 900;
const OUT_OF_MEMORY: i32 = 2;
/// The pool attribute for the memory that a pool has reserved now.
const RESERVED: u64 = 5;

impl Native {
    /// Compares the runs without the library. Returns an error with the reason if the program is
    /// not valid, or if its course depends on time.
    pub fn of(program: &Program, runs: &[Ran]) -> Result<Native, String> {
        for ran in runs {
            if let Some(problem) = ran.problems.first() {
                return Err(problem.clone());
            }
            if ran.code != 0 {
                return Err(ran.how_it_ended());
            }
            let in_capture = |record: &&Record| {
                let op = op_at(program, record.line);
                record.code == NOT_IN_CAPTURES
                    && op.is_some_and(|op| op.requests() || matches!(op, Op::Free | Op::FreeAsync))
            };
            if ran.seen.values().any(|record| in_capture(&record)) {
                // The library serves such a request, and reports this.
                return Err("a request in a capture that does not allow it".into());
            }
        }
        let first = &runs[0];
        let mut native = Native {
            seen: first.seen.clone(),
            counted: first.seen.keys().copied().collect(),
            stdout: first.stdout.clone(),
        };
        for other in &runs[1..] {
            native.agree(program, other)?;
        }
        native.counted.retain(|line| {
            let (record, op) = (&native.seen[line], op_at(program, *line));
            // Without a wait, it is chance whether work is complete.
            let chance = record.code == NOT_READY || record.words == [BY_CHANCE];
            let chance = op.is_some_and(Op::asks) && chance;
            // Reporting more free memory than the driver is harmless, and so is reporting more
            // reserved memory of a pool.
            let of_reserve = op == Some(Op::PoolHolds) && program.lines[*line].arg(1) == RESERVED;
            let no_room = (op == Some(Op::MemoryHas) || of_reserve) && record.words == [0];
            // It is chance if all runs without the library had the same winner.
            !chance && !no_room && !op.is_some_and(Op::competes)
        });
        Ok(native)
    }

    fn agree(&mut self, program: &Program, other: &Ran) -> Result<(), String> {
        if other.stdout != self.stdout {
            return Err("its output depends on time".into());
        }
        let lines: BTreeSet<usize> = self.seen.keys().chain(other.seen.keys()).copied().collect();
        for line in lines {
            let (own, theirs) = (self.seen.get(&line), other.seen.get(&line));
            if own == theirs {
                continue;
            }
            self.counted.remove(&line);
            let op = op_at(program, line);
            let asks = op.is_none_or(|op| op.asks() || op.competes());
            if own.map(|own| own.code) != theirs.map(|theirs| theirs.code) && !asks {
                let name = op_at(program, line).map_or("end", Op::name);
                return Err(format!("the code of {name} in line {line} depends on time"));
            }
        }
        Ok(())
    }

    /// Compares with another run without the library as well, which becomes the reference.
    pub fn and(mut self, program: &Program, run: &Ran) -> Result<Native, String> {
        let other = Native::of(program, std::slice::from_ref(run))?;
        self.agree(program, run)?;
        self.counted.retain(|line| other.counted.contains(line));
        Ok(self)
    }

    /// Excludes the answers of queries from the comparison.
    pub fn without_questions(mut self, program: &Program) -> Native {
        self.counted.retain(|line| !op_at(program, *line).is_some_and(Op::asks));
        self
    }

    /// Lines whose request found no memory without the library.
    pub fn refused(&self, program: &Program) -> HashSet<usize> {
        let refused = |record: &&Record| {
            let requests = op_at(program, record.line).is_some_and(Op::requests);
            requests && record.code == OUT_OF_MEMORY
        };
        self.seen.values().filter(refused).map(|record| record.line).collect()
    }

    /// Differences of a run under the library.
    pub fn differences(&self, program: &Program, conf: &str, ran: &Ran) -> Vec<Finding> {
        let finding = |kind: String, detail: String| Finding { conf: conf.into(), kind, detail };
        let mut found = Vec::new();
        for (kind, problem) in
            ran.problems.iter().map(|problem| (without_numbers(problem), problem))
        {
            if found.iter().all(|known: &Finding| known.kind != kind) {
                found.push(finding(kind, problem.clone()));
            }
        }
        if ran.code != 0 {
            let last = ran.seen.keys().next_back().map_or("before its first line".into(), |line| {
                format!(
                    "after line {line} ({})",
                    program.lines.get(*line).map_or("the end".into(), |it| it.text())
                )
            });
            found.push(finding(ran.how_it_ended(), format!("{last} {}", ran.stderr.trim_end())));
        }
        if ran.stdout != self.stdout {
            found.push(finding("another output".into(), ran.stdout.clone()));
        }
        if let Some(line) = ran.stderr.lines().find(|line| is_trouble(line)) {
            found.push(finding(without_numbers(line), line.into()));
        }
        let until = self.end_of_likeness(program, &ran.seen);
        // Filling is work of the library, which a query may find incomplete.
        let fills = conf.contains("fill:");
        let different = self.counted.iter().take_while(|line| **line < until).find_map(|line| {
            let native = &self.seen[line];
            if fills && op_at(program, *line).is_some_and(Op::asks) {
                return None;
            }
            let refused_natively =
                native.code == OUT_OF_MEMORY && op_at(program, *line).is_some_and(Op::requests);
            match ran.seen.get(line) {
                Some(ours) if refused_natively && [0, OUT_OF_MEMORY].contains(&ours.code) => None,
                ours if ours == Some(native) => None,
                // A query whose answer is fixed without the library may be answered by chance under
                // the library.
                Some(ours)
                    if op_at(program, *line).is_some_and(Op::asks) && ours.code == native.code =>
                {
                    None
                }
                ours => Some((native, ours)),
            }
        });
        // The exit code already reports that a run ended early.
        if let Some((native, ours)) = different.filter(|_| ran.code == 0) {
            if ours.is_none_or(|ours| ours.code != native.code) {
                // From this line on another program was played: other differences may follow from
                // that.
                found.clear();
            }
            found.push(self.line_differs(program, conf, native, ours));
        }
        found
    }

    /// Returns the first line from which on the two runs played different programs without any
    /// fault: the library served a stream-ordered request that the driver refuses, and the block
    /// was freed at once. If work precedes that free, another request finds the memory still in
    /// use.
    fn end_of_likeness(&self, program: &Program, seen: &Seen) -> usize {
        let mut given_back = false;
        for (line, ours) in seen {
            let (Some(op), Some(native)) = (op_at(program, *line), self.seen.get(line)) else {
                continue;
            };
            match (op, native.code, ours.code) {
                (Op::CtxSync, _, 0) => given_back = false,
                (Op::AllocAsync | Op::AllocPool, OUT_OF_MEMORY, 0) => given_back = true,
                (_, 0, OUT_OF_MEMORY) if given_back && op.requests() => return *line,
                _ => {}
            }
        }
        usize::MAX
    }

    fn line_differs(
        &self,
        program: &Program,
        conf: &str,
        native: &Record,
        ours: Option<&Record>,
    ) -> Finding {
        let text = program.lines.get(native.line).map_or("at the end".into(), |line| line.text());
        let name = op_at(program, native.line).map_or("at the end", Op::name);
        let what = match ours {
            None => "is skipped".to_string(),
            Some(ours) if ours.code != native.code => {
                format!("answers {} for {}", ours.code, native.code)
            }
            Some(_) => "sees something else".into(),
        };
        let saw = |record: &Record| format!("{} {:x?}", record.code, record.words);
        let ours = ours.map_or("nothing".into(), saw);
        Finding {
            conf: conf.into(),
            kind: format!("{name} {what}"),
            detail: format!("line {} ({text}): natively {}, here {ours}", native.line, saw(native)),
        }
    }
}

pub fn op_at(program: &Program, line: usize) -> Option<Op> {
    program.lines.get(line).map(|line| line.op)
}

/// Whether the line is one that the library prints when it can no longer serve.
pub fn is_trouble(line: &str) -> bool {
    line.contains("caching is off") || line.contains("panicked")
}

/// Returns the part of a line that it shares with others of the same cause.
pub fn without_numbers(text: &str) -> String {
    if text.starts_with("exit code ") {
        return text.into();
    }
    if text.starts_with("sim: race") {
        // Which two kernels meet first is chance.
        return "race".into();
    }
    let text = text.split(" bytes [").next().unwrap_or(text);
    let mut kept = String::new();
    let mut in_number = false;
    for letter in text.chars() {
        let digit = letter.is_ascii_digit();
        if !digit {
            kept.push(letter);
        } else if !in_number {
            kept.push('N');
        }
        in_number = digit;
    }
    kept
}

/// How often each kind of finding occurred, and its first occurrence.
pub type Tally = BTreeMap<String, (u64, String)>;
