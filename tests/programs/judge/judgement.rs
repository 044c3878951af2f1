//! Runs under the library, and what they show.

use crate::compare::{Finding, Native};
use crate::grammar::Program;
use crate::play::Pace;
use crate::run::{Baseline, How, Machine, Ran};

/// How often what differs on a GPU is run natively once more, at most.
const NATIVE_RUNS_MORE: usize = 16;

impl Machine {
    /// What differs under the library with these settings; None: it promises nothing here.
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

    /// Runs under the library, one program after the other in one process. What the process as a
    /// whole has said is in each.
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

    /// How these runs under the library differ, of each program.
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
        // The pace was another one than that at which the programs were found valid.
        let simulated = How {
            simulated: true,
            frees_do_not_wait: conf.contains("relaxed"),
            ..at_pace_of(programs, conf)
        };
        let mut natively = vec![self.run_all(&programs_of(programs), &simulated)];
        let mut found = against(&natively, programs, conf, ran);
        // What a GPU does now and then, it does natively too: of the driver's end of a graph one of
        // four was a crash.
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

/// What differs from all of these native runs, too.
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

/// As the library plays them under these settings.
fn at_pace_of(programs: &[(&Program, &Native)], conf: &str) -> How<'static> {
    let seed = programs[0].0.seed;
    let turn = (seed + conf.len() as u64) % 3;
    let pace = if turn == 0 { Pace::Mixed(seed + 1) } else { Pace::Slow };
    How { pace: Some(pace), lingers: turn == 1, ..How::default() }
}
