//! Many programs, one after the other or at once; what they find, and a summary.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::compare::{Finding, Tally};
use crate::generate;
use crate::grammar::Program;
use crate::run::Machine;
use crate::shrink::{NATIVE, Shrinker};

/// Under these every program is judged.
const ALWAYS: [&str; 3] = ["free_mode:ordered", "free_mode:strict", "free_mode:relaxed"];
/// Of these, each program gets one.
const NOW_AND_THEN: [&str; 7] = [
    "free_mode:ordered,expandable_segments:true",
    "free_mode:ordered,record:all",
    "free_mode:ordered,graph_pool:true",
    "free_mode:relaxed,expandable_segments:true",
    "free_mode:ordered,fill:zero,red_zone:64",
    "free_mode:ordered,fraction_of_gpu_memory_to_use:0",
    "free_mode:strict,expandable_segments:true",
];

struct Campaign<'a> {
    arguments: &'a Arguments,
    confs: Vec<String>,
    known: HashSet<String>,
    themes: Vec<String>,
    next: AtomicU64,
    end: u64,
    until: Option<Instant>,
    stop: AtomicBool,
    programs: AtomicU64,
    steps: AtomicU64,
    dropped: Mutex<Tally>,
    found: Mutex<Tally>,
}

pub fn run(arguments: &Arguments) -> Result<bool, String> {
    let seeds = arguments.seeds()?;
    let theme = arguments.text("theme").unwrap_or("all");
    // On a GPU hundreds of contexts take minutes.
    let in_all = |name: &&str| !arguments.has("gpu") || *name != "many_contexts";
    let wanted = |name: &&str| if theme == "all" { in_all(name) } else { *name == theme };
    let themes = generate::themes().into_iter().filter(wanted);
    let seconds = arguments.number("seconds", 0)?;
    let campaign = Campaign {
        arguments,
        confs: arguments.texts("conf"),
        known: arguments.known(),
        themes: themes.map(str::to_string).collect(),
        next: AtomicU64::new(seeds.start),
        end: if seconds > 0 && !arguments.has("seeds") { u64::MAX } else { seeds.end },
        until: (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds)),
        stop: AtomicBool::new(false),
        programs: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        dropped: Mutex::default(),
        found: Mutex::default(),
    };
    if campaign.themes.is_empty() {
        return Err(format!("there is no theme {theme}"));
    }
    let machine = arguments.machine()?;
    let jobs = arguments.number("jobs", 1)?;
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let own = Machine { scratch: machine.scratch.join(job.to_string()), ..machine.clone() };
            let campaign = &campaign;
            scope.spawn(move || campaign.work(&own));
        }
    });
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of runs that are over
    Ok(campaign.sum_up())
}

impl Campaign<'_> {
    fn work(&self, machine: &Machine) {
        let over = || self.until.is_some_and(|until| Instant::now() > until);
        while !self.stop.load(Ordering::SeqCst) && !over() {
            // A seed is of one theme after the other.
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= self.end {
                return;
            }
            for theme in &self.themes {
                self.one(machine, number, theme);
                if self.stop.load(Ordering::SeqCst) || over() {
                    return;
                }
            }
        }
    }

    fn one(&self, machine: &Machine, seed: u64, theme: &str) {
        let program = generate::program(seed, theme, &self.known).expect("a theme that there is");
        let confs = match self.confs.is_empty() {
            false => self.confs.clone(),
            true => {
                let more = NOW_AND_THEN[(seed % NOW_AND_THEN.len() as u64) as usize];
                let more = Some(more).filter(|conf| self.may_use(conf, &program));
                ALWAYS.iter().copied().chain(more).map(str::to_string).collect()
            }
        };
        let relaxed = confs.iter().any(|conf| conf.contains("relaxed"));
        let baseline = match machine.baseline(&program, relaxed) {
            Ok(baseline) => baseline,
            Err(why) => {
                let why = format!("{theme}: {}", crate::compare::without_numbers(&why));
                tally(&self.dropped, why, format!("seed {seed}"));
                return;
            }
        };
        self.programs.fetch_add(1, Ordering::SeqCst);
        let mut found = Vec::new();
        for conf in &confs {
            if let Some(differences) = machine.judge(&program, &baseline, conf) {
                self.steps.fetch_add(program.lines.len() as u64, Ordering::SeqCst);
                found.extend(differences);
            }
        }
        for finding in &found {
            let name = format!("{theme} | {} | {}", finding.conf, finding.kind);
            let first = tally(&self.found, name, format!("seed {seed}: {}", finding.detail));
            if first && !self.arguments.has("quiet") {
                self.report(machine, &program, finding);
            }
            if self.arguments.has("first") {
                self.stop.store(true, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Settings that are known to differ, in all programs or where memory is short.
    fn may_use(&self, conf: &str, program: &Program) -> bool {
        let known = |name: &str| self.known.contains(name);
        let expandable = conf.contains("expandable") && program.memory_mb < 512;
        let fills = conf.contains("fill:") && known("fill_and_red_zone");
        let moves = expandable && known("expandable_pressure");
        // Natively refused, and not served where nothing is cached: no cache to judge by.
        let uncached = program.theme == "cached" && conf.contains("memory_to_use:0");
        !(fills || moves || uncached)
    }

    fn report(&self, machine: &Machine, program: &Program, finding: &Finding) {
        let Finding { conf, kind, detail } = finding;
        let shrunk = match self.arguments.has("no-shrink") {
            true => None,
            false => Some(shrink_to(machine, program, conf, kind, 1)),
        };
        println!("== {} seed {} under {conf}: {kind}\n   {detail}", program.theme, program.seed);
        let Some(small) = shrunk else { return };
        println!("{}", small.text());
        if let Some(folder) = self.arguments.text("out") {
            let name: String =
                kind.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            let name = format!("{}-{}-{name}.txt", program.theme, program.seed);
            let text = format!("# under {conf}: {kind}\n{}", small.text());
            let _ = std::fs::create_dir_all(folder); // a failure shows in the next line
            if let Err(error) = std::fs::write(Path::new(folder).join(name), text) {
                eprintln!("judge: {folder}: {error}");
            }
        }
    }

    fn sum_up(&self) -> bool {
        let (programs, steps) =
            (self.programs.load(Ordering::SeqCst), self.steps.load(Ordering::SeqCst));
        let dropped = self.dropped.lock().expect("no job panics");
        let found = self.found.lock().expect("no job panics");
        let dropped_count: u64 = dropped.values().map(|(count, _)| count).sum();
        println!("{programs} programs, {steps} steps, {dropped_count} programs not valid");
        dropped
            .iter()
            .for_each(|(why, (count, first))| println!("  not valid {count}: {why} ({first})"));
        found
            .iter()
            .for_each(|(what, (count, first))| println!("  DIFFERENT {count}: {what} ({first})"));
        found.is_empty()
    }
}

/// Whether it is the first of its kind.
fn tally(tally: &Mutex<Tally>, name: String, first: String) -> bool {
    let mut tally = tally.lock().expect("no job panics");
    let entry = tally.entry(name).or_insert((0, first));
    entry.0 += 1;
    entry.0 == 1
}

fn shrink_to(
    machine: &Machine,
    program: &Program,
    conf: &str,
    kind: &str,
    tries: usize,
) -> Program {
    let mut shrinker = Shrinker { machine, conf, kind, tries, runs: 0, runs_max: 600 };
    shrinker.shrink(program)
}

/// Programs from files: each must be valid, and the same under the library.
pub fn check(arguments: &Arguments) -> Result<bool, String> {
    let machine = arguments.machine()?;
    let mut confs = arguments.texts("conf");
    if confs.is_empty() {
        confs = ALWAYS.iter().chain(&NOW_AND_THEN[..1]).map(|conf| conf.to_string()).collect();
    }
    let mut good = true;
    for file in arguments.files() {
        let program = Program::read_file(file)?;
        let baseline = match machine.baseline(&program, true) {
            Ok(baseline) => baseline,
            Err(why) => {
                println!("{file}: not valid: {why}");
                good = false;
                continue;
            }
        };
        for conf in &confs {
            for finding in machine.judge(&program, &baseline, conf).unwrap_or_default() {
                println!("{file}: under {conf}: {}\n   {}", finding.kind, finding.detail);
                good = false;
            }
        }
    }
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of runs that are over
    Ok(good)
}

pub fn shrink(arguments: &Arguments) -> Result<bool, String> {
    let machine = arguments.machine()?;
    let program = Program::read_file(&arguments.free(0)?)?;
    let conf = arguments.text("conf").unwrap_or("free_mode:ordered").to_string();
    let tries = arguments.number("tries", 1)? as usize;
    if conf == NATIVE {
        let why = machine.baseline(&program, false).err().unwrap_or_default();
        let kind = crate::compare::without_numbers(&why);
        let small = shrink_to(&machine, &program, &conf, &kind, 1);
        println!("# {why}\n{}", small.text());
        return Ok(!why.is_empty());
    }
    let baseline = machine.baseline(&program, conf.contains("relaxed"))?;
    let found = (0..tries).find_map(|_| {
        let found = machine.judge(&program, &baseline, &conf)?;
        found
            .into_iter()
            .find(|finding| arguments.text("kind").is_none_or(|kind| finding.kind.contains(kind)))
    });
    let Some(finding) = found else {
        println!("# nothing differs");
        return Ok(false);
    };
    let small = shrink_to(&machine, &program, &conf, &finding.kind, tries);
    println!("# under {conf}: {}\n{}", finding.kind, small.text());
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of runs that are over
    Ok(true)
}
