//! Runs under the library, and their differences.

use crate::compare::{Finding, Native};
use crate::grammar::Program;
use crate::play::Pace;
use crate::run::{Baseline, How, Machine, Ran};

/// Maximum number of further runs without the library on a GPU when something differs.
const NATIVE_RUNS_MORE: usize = 16;

impl Machine {
    /// Returns the differences under the library with these settings, or `None` if the library
    /// promises nothing here.
    pub fn judge(
        &self,
        program: &Program,
        baseline: &Baseline,
        conf: &str,
    ) -> Option<Vec<Finding>> {
        let programs = [(program, baseline.under(conf)?)];
        let ran = self.under_library(&programs, conf);
        Some(self.differences(&programs, conf, &ran).remove(0))
    }

    /// Runs the programs under the library, one after the other in one process. Each result
    /// contains the output of the whole process.
    pub fn under_library(&self, programs: &[(&Program, &Native)], conf: &str) -> Vec<Ran> {
        let refused = |(program, native): &(&Program, &Native)| {
            let lines: Vec<String> = native.refused(program).iter().map(usize::to_string).collect();
            lines.join(",")
        };
        let how = How {
            simulated: !self.gpu,
            conf: Some(conf),
            refused: programs.iter().map(refused).collect(),
            ..at_pace_of(programs, conf)
        };
        self.run_all(&programs_of(programs), &how)
    }

    /// Differences of these runs under the library, for each program.
    pub fn differences(
        &self,
        programs: &[(&Program, &Native)],
        conf: &str,
        ran: &[Ran],
    ) -> Vec<Vec<Finding>> {
        let each = programs.iter().zip(ran);
        let found: Vec<Vec<Finding>> =
            each.map(|((program, native), ran)| native.differences(program, conf, ran)).collect();
        if found.iter().all(Vec::is_empty) {
            return found;
        }
        // The programs were found valid at another pace than the one used here.
        let simulated = How {
            simulated: true,
            frees_do_not_wait: conf.contains("relaxed"),
            ..at_pace_of(programs, conf)
        };
        let mut natively = vec![self.run_all(&programs_of(programs), &simulated)];
        let mut found = against(&natively, programs, conf, ran);
        // What a GPU does only sometimes it also does without the library: one in four ends of a
        // graph in the driver crashed.
        while self.gpu
            && natively.len() <= NATIVE_RUNS_MORE
            && !found.iter().all(Vec::is_empty)
            && !self.ending.has_come()
        {
            natively.push(self.run_all(&programs_of(programs), &at_pace_of(programs, conf)));
            found = against(&natively, programs, conf, ran);
        }
        found
    }
}

/// Differences from all of these runs without the library.
fn against(
    natively: &[Vec<Ran>],
    programs: &[(&Program, &Native)],
    conf: &str,
    ran: &[Ran],
) -> Vec<Vec<Finding>> {
    let of_one = |number: usize| {
        let (program, native) = programs[number];
        let mut runs = natively.iter().map(|runs| &runs[number]);
        let native = runs.try_fold(native.clone(), |native, ran| native.and(program, ran));
        native.map_or(Vec::new(), |native| native.differences(program, conf, &ran[number]))
    };
    (0..programs.len()).map(of_one).collect()
}

fn programs_of<'a>(programs: &[(&'a Program, &Native)]) -> Vec<&'a Program> {
    programs.iter().map(|(program, _)| *program).collect()
}

/// Runs the programs as the library plays them under these settings.
fn at_pace_of(programs: &[(&Program, &Native)], conf: &str) -> How<'static> {
    let seed = programs[0].0.seed;
    let turn = (seed + conf.len() as u64) % 3;
    let pace = if turn == 0 { Pace::Mixed(seed + 1) } else { Pace::Slow };
    How { pace: Some(pace), lingers: turn == 1, ..How::default() }
}
