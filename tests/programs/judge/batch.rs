//! Several programs of one theme, played one after the other in one process: on a GPU, starting a
//! process takes longer than a program. A program that differs in a batch is judged again alone,
//! and its difference is reported as usual. A difference that appears only after other programs is
//! reported as such.

use std::sync::atomic::Ordering;

use crate::campaign::Campaign;
use crate::compare::{Finding, Native, is_trouble};
use crate::grammar::{Op, Program};
use crate::run::{Baseline, HUNG, Machine, Ran, Simulated};

/// Prefix of the kind of a finding that does not appear when its program runs alone.
pub const BEHIND_OTHERS: &str = "behind others: ";

impl Campaign<'_> {
    pub(crate) fn several(&self, machine: &Machine, programs: Vec<Program>) {
        if programs.len() == 1 {
            return self.one(machine, &programs[0]);
        }
        let (alone, together): (Vec<_>, Vec<_>) = programs.into_iter().partition(wants_a_process);
        for program in &alone {
            if self.is_over() {
                return;
            }
            self.one(machine, program);
        }
        if together.is_empty() {
            return;
        }
        let confs = self.confs_for(&together[0]);
        let relaxed = confs.iter().any(|conf| conf.contains("relaxed"));
        let Some(valid) = self.simulated(machine, together, relaxed) else { return };
        if valid.is_empty() {
            return;
        }
        let Some(judged) = self.natively(machine, valid) else { return };
        self.programs.fetch_add(judged.len() as u64, Ordering::SeqCst);
        let mut found: Vec<Vec<Finding>> = judged.iter().map(|_| Vec::new()).collect();
        for conf in &confs {
            if self.is_over() {
                break;
            }
            self.under(machine, conf, &judged, &mut found);
        }
        for ((program, _), found) in judged.iter().zip(&found) {
            self.note(machine, program, found);
        }
    }

    /// Selects the valid programs. Returns `None` if no time is left.
    fn simulated(
        &self,
        machine: &Machine,
        programs: Vec<Program>,
        own_order: bool,
    ) -> Option<Vec<(Program, Simulated)>> {
        let mut valid = Vec::new();
        for program in programs {
            if self.is_over() {
                return None;
            }
            match machine.simulated(&program, own_order) {
                Ok(simulated) => valid.push((program, simulated)),
                Err(why) => self.drop_program(&program, &why),
            }
        }
        Some(valid)
    }

    /// Runs the programs without the library, and leaves out those that hang or end the process.
    /// Returns `None` if no time is left.
    fn natively(
        &self,
        machine: &Machine,
        mut valid: Vec<(Program, Simulated)>,
    ) -> Option<Vec<(Program, Baseline)>> {
        let mut runs: Vec<Vec<Ran>> = Vec::new();
        while machine.gpu && runs.len() < 2 && !valid.is_empty() {
            let programs: Vec<&Program> = valid.iter().map(|(program, _)| program).collect();
            let ran = machine.natively(&programs);
            if self.ending.has_come() {
                return None;
            }
            if !is_wrong(&ran[0]) {
                runs.push(ran);
                continue;
            }
            // The last program begun may have ended the process; the others are run again.
            let last = ran.iter().rposition(|ran| !ran.seen.is_empty()).unwrap_or(0);
            let why = match ran[0].code {
                HUNG => "hangs without the library".to_string(),
                0 => "trouble without the library".to_string(),
                _ => format!("{} without the library", ran[0].how_it_ended()),
            };
            self.drop_program(&valid.remove(last).0, &why);
            runs.clear();
        }
        let mut judged = Vec::new();
        for (number, (program, simulated)) in valid.into_iter().enumerate() {
            let others: Vec<&Ran> = runs.iter().map(|runs| &runs[number]).collect();
            match simulated.with(&program, &others) {
                Ok(baseline) => judged.push((program, baseline)),
                Err(why) => self.drop_program(&program, &why),
            }
        }
        Some(judged)
    }

    /// Judges the programs under these settings.
    fn under(
        &self,
        machine: &Machine,
        conf: &str,
        judged: &[(Program, Baseline)],
        found: &mut [Vec<Finding>],
    ) {
        let promised = |number: &usize| judged[*number].1.under(conf).is_some();
        let numbers: Vec<usize> = (0..judged.len()).filter(promised).collect();
        if numbers.is_empty() {
            return;
        }
        let native = |number: usize| judged[number].1.under(conf).expect("it promises something");
        let programs: Vec<(&Program, &Native)> =
            numbers.iter().map(|number| (&judged[*number].0, native(*number))).collect();
        let runs = machine.under_library(&programs, conf);
        if self.ending.has_come() {
            return; // it may have been stopped
        }
        let differs = |place: &usize| {
            let (program, native) = programs[*place];
            let ran = &runs[*place];
            is_wrong(ran) || !native.differences(program, conf, ran).is_empty()
        };
        let suspects: Vec<usize> = (0..programs.len()).filter(differs).collect();
        programs.iter().for_each(|(program, _)| self.count_steps(program, conf));
        let mut shown = false;
        for place in &suspects {
            let (program, baseline) = &judged[numbers[*place]];
            let alone = machine.judge(program, baseline, conf).unwrap_or_default();
            if self.ending.has_come() {
                return;
            }
            shown |= !alone.is_empty();
            found[numbers[*place]].extend(alone);
        }
        if let Some(place) = suspects.first().filter(|_| !shown) {
            let first =
                machine.differences(&programs, conf, &runs).remove(*place).into_iter().next();
            let finding = first.map(|finding| Finding {
                kind: format!("{BEHIND_OTHERS}{}", finding.kind),
                detail: format!("{} (a batch from seed {})", finding.detail, programs[0].0.seed),
                ..finding
            });
            found[numbers[*place]].extend(finding);
        }
    }
}

/// Whether something is wrong with the process, whichever of its programs causes it.
fn is_wrong(ran: &Ran) -> bool {
    let trouble = ran.stderr.lines().any(is_trouble);
    ran.code != 0 || !ran.problems.is_empty() || !ran.stdout.is_empty() || trouble
}

/// Whether a line affects, prints or queries state of the whole process, as the end of the process
/// does. The default pool still counts memory that `cuMemFree` has freed.
fn wants_a_process(program: &Program) -> bool {
    let of_process = |op: Op| matches!(op, Op::Fault | Op::FaultsOver | Op::Say | Op::PoolHolds);
    program.theme == "text" || program.lines.iter().any(|line| of_process(line.op))
}
