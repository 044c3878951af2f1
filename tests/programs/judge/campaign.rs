//! Many programs, run one after the other or in parallel, with their findings and a summary.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::batch::BEHIND_OTHERS;
use crate::compare::{Finding, Tally};
use crate::driver_crashes::DriverCrashes;
use crate::ending::Ending;
use crate::generate;
use crate::gpus::Gpus;
use crate::grammar::{Program, wants_scarcity};
use crate::run::Machine;
use crate::shrink::{NATIVE, Shrinker};

/// Settings under which every program is judged.
const ALWAYS: [&str; 3] = ["free_mode:ordered", "free_mode:strict", "free_mode:relaxed"];
/// Settings of which each program gets one.
const NOW_AND_THEN: [&str; 11] = [
    "free_mode:ordered,expandable_segments:true",
    "free_mode:ordered,record:all",
    "free_mode:ordered,graph_pool:true",
    "free_mode:relaxed,expandable_segments:true",
    "free_mode:ordered,fill:zero,red_zone:64",
    "cache:false,record:all",
    "free_mode:strict,expandable_segments:true",
    // The limit is as large as the device for which the program is made.
    "free_mode:ordered,gpu_memory_limit_mb:?",
    "free_mode:relaxed,fill:poison,idle_release_s:1",
    "free_mode:ordered,eager_delete_tensor_gb:0.01",
    "free_mode:strict,eager_delete_tensor_gb:0.01,expandable_segments:true",
];

pub(crate) struct Campaign<'a> {
    arguments: &'a Arguments,
    /// Number of programs played in one process.
    batch: u64,
    confs: Vec<String>,
    without: HashSet<String>,
    themes: Vec<String>,
    gpus: Gpus,
    next: AtomicU64,
    end: u64,
    pub(crate) ending: Ending,
    found_one: AtomicBool,
    pub(crate) programs: AtomicU64,
    /// Number of judged lines, by mode.
    steps: Mutex<BTreeMap<String, u64>>,
    dropped: Mutex<Tally>,
    found: Mutex<Tally>,
    /// Time that all jobs together have spent on each theme.
    spent: Mutex<BTreeMap<String, Duration>>,
    crashes: DriverCrashes,
}

pub fn run(arguments: &Arguments) -> Result<bool, String> {
    let seeds = arguments.seeds()?;
    let theme = arguments.text("theme").unwrap_or("all");
    let (gpu, gpus) = (arguments.has("gpu"), Gpus::visible());
    // On a GPU hundreds of contexts take minutes, and a program that makes memory scarce needs the
    // GPU for itself.
    let in_all = |name: &&str| {
        let suits = *name != "many_contexts" && !wants_scarcity(name);
        !gpu || suits && generate::devices_of(name) <= gpus.count()
    };
    let wanted = |name: &&str| match theme {
        "all" => in_all(name),
        "scarce" => wants_scarcity(name),
        theme => *name == theme,
    };
    let themes: Vec<String> =
        generate::themes().into_iter().filter(wanted).map(str::to_string).collect();
    let alone = gpu && themes.iter().any(|name| wants_scarcity(name));
    let seconds = arguments.number("seconds", 0)?;
    let campaign = Campaign {
        arguments,
        batch: arguments.number("batch", if gpu { BATCH_ON_GPU } else { 1 })?.max(1),
        confs: arguments.texts("conf"),
        without: arguments.without().into_iter().chain(gpu.then(|| "faults".into())).collect(),
        themes,
        gpus,
        next: AtomicU64::new(seeds.start),
        end: if seconds > 0 && !arguments.has("seeds") { u64::MAX } else { seeds.end },
        ending: Ending::after(seconds),
        found_one: AtomicBool::new(false),
        programs: AtomicU64::new(0),
        steps: Mutex::default(),
        dropped: Mutex::default(),
        found: Mutex::default(),
        spent: Mutex::default(),
        crashes: DriverCrashes::default(),
    };
    if campaign.themes.is_empty() {
        return Err(format!("unknown theme {theme}"));
    }
    let crashes = campaign.crashes.clone();
    let machine = Machine { ending: campaign.ending, crashes, ..arguments.machine()? };
    let jobs_max = if alone { campaign.gpus.count() } else { u64::MAX };
    let jobs = arguments.number("jobs", 1)?.min(jobs_max);
    std::thread::scope(|scope| {
        let campaign = &campaign;
        let work = |job: u64| {
            let gpu_name = campaign.gpus.of_job(job).filter(|_| gpu);
            let scratch = machine.scratch.join(job.to_string());
            let own = Machine { scratch, gpu_name, ..machine.clone() };
            scope.spawn(move || campaign.work(&own, job as usize))
        };
        let workers: Vec<_> = (0..jobs).map(work).collect();
        let mut said = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                println!("{}", campaign.so_far());
            }
        }
    });
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of ended runs
    Ok(campaign.sum_up())
}

impl Campaign<'_> {
    fn work(&self, machine: &Machine, job: usize) {
        while !self.is_over() {
            // Consecutive seeds go through the themes in turn. Each job begins with another one, so
            // that a short run has a bit of all.
            let first = self.next.fetch_add(self.batch, Ordering::SeqCst);
            if first >= self.end {
                return;
            }
            for theme in self.themes.iter().cycle().skip(job).take(self.themes.len()) {
                let seeds = first..self.end.min(first + self.batch);
                let programs = seeds.map(|seed| self.program(seed, theme)).collect();
                let begun = Instant::now();
                self.several(machine, programs);
                let mut spent = self.spent.lock().expect("no job panics");
                *spent.entry(theme.clone()).or_default() += begun.elapsed();
                drop(spent);
                if self.is_over() {
                    return;
                }
            }
        }
    }

    fn program(&self, seed: u64, theme: &str) -> Program {
        generate::program(seed, theme, &self.without).expect("a known theme")
    }

    pub(crate) fn is_over(&self) -> bool {
        self.found_one.load(Ordering::SeqCst) || self.ending.has_come()
    }

    pub(crate) fn confs_for(&self, program: &Program) -> Vec<String> {
        if self.confs.is_empty() { confs_for(program) } else { self.confs.clone() }
    }

    /// Judges a program, each run of which is a separate process.
    pub(crate) fn one(&self, machine: &Machine, program: &Program) {
        let confs = self.confs_for(program);
        let relaxed = confs.iter().any(|conf| conf.contains("relaxed"));
        let simulated = match machine.simulated(program, relaxed) {
            Ok(simulated) => simulated,
            Err(why) => return self.drop_program(program, &why),
        };
        let baseline = match machine.with_gpu(program, simulated) {
            Ok(baseline) => baseline,
            Err(why) => return self.drop_program(program, &why),
        };
        self.programs.fetch_add(1, Ordering::SeqCst);
        let mut found = Vec::new();
        for conf in &confs {
            if let Some(differences) = machine.judge(program, &baseline, conf) {
                if self.ending.has_come() {
                    return; // it may have been stopped
                }
                self.count_steps(program, conf);
                found.extend(differences);
            }
        }
        self.note(machine, program, &found);
    }

    /// Counts a program that is not valid.
    pub(crate) fn drop_program(&self, program: &Program, why: &str) {
        if self.ending.has_come() {
            return;
        }
        let why = format!("{}: {}", program.theme, crate::compare::without_numbers(why));
        tally(&self.dropped, why, format!("seed {}", program.seed));
    }

    pub(crate) fn count_steps(&self, program: &Program, conf: &str) {
        let mode = conf.split(',').next().unwrap_or(conf).replace("free_mode:", "");
        let mut steps = self.steps.lock().expect("no job panics");
        *steps.entry(mode).or_default() += program.lines.len() as u64;
    }

    /// Records the findings of a program. The first finding of each kind is shrunk.
    pub(crate) fn note(&self, machine: &Machine, program: &Program, found: &[Finding]) {
        for finding in found {
            let name = format!("{} | {} | {}", program.theme, finding.conf, finding.kind);
            let detail = finding.detail.lines().next().unwrap_or_default();
            let first = tally(&self.found, name, format!("seed {}: {detail}", program.seed));
            if first && !self.arguments.has("quiet") {
                self.report(machine, program, finding);
            }
            if self.arguments.has("first") {
                self.found_one.store(true, Ordering::SeqCst);
                return;
            }
        }
    }

    fn report(&self, machine: &Machine, program: &Program, finding: &Finding) {
        let Finding { conf, kind, detail } = finding;
        println!("== {} seed {} under {conf}: {kind}\n   {detail}", program.theme, program.seed);
        // The program is first kept as it is: there may be no time to shrink it.
        self.keep(program, conf, kind);
        if !self.arguments.has("no-shrink") && !kind.starts_with(BEHIND_OTHERS) {
            let small = shrink_to(machine, program, conf, kind, 1);
            println!("{}", small.text());
            self.keep(&small, conf, kind);
        }
    }

    fn keep(&self, program: &Program, conf: &str, kind: &str) {
        let Some(folder) = self.arguments.text("out") else { return };
        let name: String =
            kind.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let name = format!("{}-{}-{name}.txt", program.theme, program.seed);
        let text = format!("# under {conf}: {kind}\n{}", program.text());
        let _ = std::fs::create_dir_all(folder); // a failure shows in the next line
        if let Err(error) = std::fs::write(Path::new(folder).join(name), text) {
            eprintln!("judge: {folder}: {error}");
        }
    }

    fn so_far(&self) -> String {
        let count = |tally: &Mutex<Tally>| -> u64 {
            tally.lock().expect("no job panics").values().map(|(count, _)| count).sum()
        };
        let steps = self.steps.lock().expect("no job panics");
        let by_mode: Vec<String> =
            steps.iter().map(|(mode, count)| format!("{mode} {count}")).collect();
        format!(
            "{} programs, {} steps, {} programs not valid, {} differences ({})",
            self.programs.load(Ordering::SeqCst),
            steps.values().sum::<u64>(),
            count(&self.dropped),
            count(&self.found),
            by_mode.join(", ")
        )
    }

    fn sum_up(&self) -> bool {
        println!("{}", self.so_far());
        let spent = self.spent.lock().expect("no job panics");
        let mut spent: Vec<_> = spent.iter().collect();
        spent.sort_by_key(|(_, time)| std::cmp::Reverse(**time));
        let spent: Vec<String> =
            spent.iter().map(|(theme, time)| format!("{theme} {}", time.as_secs())).collect();
        println!("  seconds of all jobs: {}", spent.join(", "));
        let dropped = self.dropped.lock().expect("no job panics");
        let found = self.found.lock().expect("no job panics");
        let (explained, found): (Vec<_>, Vec<_>) =
            found.iter().partition(|(what, _)| self.crashes.explain(what));
        let say = |start: &str, what: &str, (count, first): &(u64, String)| {
            println!("  {start} {count}: {what} ({first})");
        };
        dropped.iter().for_each(|(why, times)| say("not valid", why, times));
        explained
            .iter()
            .for_each(|(what, times)| say("crashes without the library too", what, times));
        found.iter().for_each(|(what, times)| say("DIFFERENT", what, times));
        found.is_empty()
    }
}

/// Batch size on a GPU, where starting a process takes longer than a program. With larger batches
/// it takes minutes until the first results count.
const BATCH_ON_GPU: u64 = 4;
const SHRINK_TIME: Duration = Duration::from_secs(40);
const SAY_EVERY: Duration = Duration::from_secs(20);

/// Settings under which a program is judged.
pub fn confs_for(program: &Program) -> Vec<String> {
    let more = NOW_AND_THEN[(program.seed % NOW_AND_THEN.len() as u64) as usize];
    // The plain driver refuses such a request, and the library does not serve it if nothing is
    // cached: there is no cache to compare with.
    let caches_nothing = ["memory_to_use:0", "cache:false"].iter().any(|conf| more.contains(conf));
    let uncached = program.theme == "cached" && caches_nothing;
    // Red zones take memory.
    let no_room = program.memory_mb < 512 && more.contains("red_zone");
    // The driver blocks the fill of a request while another thread's free waits.
    let blocks = program.theme == "waits" && more.contains("fill:");
    let more = Some(more).filter(|_| !uncached && !no_room && !blocks);
    ALWAYS.iter().copied().chain(more).map(str::to_string).collect()
}

/// Counts a finding, and returns whether it is the first of its kind.
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
    let mut shrinker = Shrinker { machine, conf, kind, tries, until: Instant::now() + SHRINK_TIME };
    shrinker.shrink(program)
}

/// Checks programs from files: each must be valid, and behave the same under the library.
pub fn check(arguments: &Arguments) -> Result<bool, String> {
    let machine = arguments.machine()?;
    let wanted = arguments.texts("conf");
    let mut good = true;
    for file in arguments.files() {
        let program = Program::read_file(file)?;
        let mut confs = wanted.clone();
        if confs.is_empty() {
            confs = ALWAYS.iter().chain(&NOW_AND_THEN[..1]).map(|conf| conf.to_string()).collect();
            confs.extend(under(file));
        }
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
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of ended runs
    Ok(good)
}

/// Settings under which a kept program differed, according to its file.
fn under(file: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let (conf, _) = text.strip_prefix("# under ")?.split_once(": ")?;
    Some(conf.to_string())
}

/// Prints each function of the driver that programs of these seeds call, once.
pub fn made(arguments: &Arguments) -> Result<bool, String> {
    let machine = arguments.machine()?;
    let mut made = std::collections::BTreeSet::new();
    for theme in generate::themes() {
        for seed in arguments.seeds()? {
            let program = generate::program(seed, theme, &arguments.without())?;
            made.extend(machine.calls(&program));
        }
    }
    made.iter().for_each(|name| println!("{name}"));
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of ended runs
    Ok(true)
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
    let _ = std::fs::remove_dir_all(&machine.scratch); // logs of ended runs
    Ok(true)
}
