//! Runs programs with and without the library: each in its own process, or several in one process,
//! one after the other.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::compare::Native;
use crate::driver_crashes::{DriverCrashes, place_in};
use crate::ending::Ending;
use crate::gpus::VISIBLE;
use crate::grammar::Program;
use crate::log::{self, Seen};
use crate::play::Pace;
use crate::play::crash::write_stacks_of;

/// Where programs run, and with which library and driver.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Folder of the simulated driver, which decides which programs are valid.
    pub simulator: PathBuf,
    /// Library under test.
    pub library: PathBuf,
    /// Whether the compared runs use this machine's own driver.
    pub gpu: bool,
    /// The GPU on which programs of one device are played; `None` if it is the first.
    pub gpu_name: Option<String>,
    /// Folder for logs; each job has a subfolder.
    pub scratch: PathBuf,
    /// Rule of the library to leave out, to see whether its absence is detected.
    pub broken: String,
    /// When this is reached, a run in progress is stopped, and its results do not count.
    pub ending: Ending,
    /// Of runs without the library on a GPU.
    pub crashes: DriverCrashes,
}

/// Results of one run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub seen: Seen,
    /// Problems that the simulation found.
    pub problems: Vec<String>,
}

impl Ran {
    /// Says how the run ended, with the place if it crashed.
    pub fn how_it_ended(&self) -> String {
        match place_in(&self.stderr) {
            Some(place) => format!("exit code {} at {place}", self.code),
            None => format!("exit code {}", self.code),
        }
    }
}

/// How one run is made.
#[derive(Clone, Default)]
pub struct How<'a> {
    pub pace: Option<Pace>,
    pub simulated: bool,
    /// Settings of the library, or `None` to run without it.
    pub conf: Option<&'a str>,
    /// The requests to be refused, for each program.
    pub refused: Vec<String>,
    pub frees_do_not_wait: bool,
    /// Whether calls of the simulated driver pause at times, so that threads meet.
    pub lingers: bool,
}

/// Results of a program without the library.
pub struct Baseline {
    pub native: Native,
    /// The same results for modes in which a free orders nothing, or `None` if the program relies
    /// on that order.
    pub own_order: Option<Native>,
}

impl Baseline {
    /// Returns the lines to compare under these settings, or `None` if the library promises nothing
    /// there.
    pub fn under(&self, conf: &str) -> Option<&Native> {
        match conf.contains("free_mode:relaxed") {
            true => self.own_order.as_ref(),
            false => Some(&self.native),
        }
    }
}

/// The runs on the simulated driver that decide whether a program is valid.
pub struct Simulated {
    runs: Vec<Ran>,
    unordered: Option<Ran>,
}

impl Simulated {
    /// Returns the lines to compare: those that are also the same in each of these further runs
    /// without the library.
    pub fn with(self, program: &Program, others: &[&Ran]) -> Result<Baseline, String> {
        let of_all = || -> Result<Native, String> {
            others
                .iter()
                .try_fold(Native::of(program, &self.runs)?, |native, ran| native.and(program, ran))
        };
        let native = of_all()?;
        let own_order = match &self.unordered {
            // On a GPU a record takes time even if no work precedes it, and only a free that waits
            // takes as long.
            Some(ran) if others.is_empty() => of_all()?.and(program, ran).ok(),
            Some(ran) => of_all()?.and(program, ran).ok().map(|it| it.without_questions(program)),
            None => None,
        };
        Ok(Baseline { native, own_order })
    }
}

impl Machine {
    /// Checks whether the program is valid, and returns the lines to compare.
    pub fn baseline(&self, program: &Program, own_order: bool) -> Result<Baseline, String> {
        let simulated = self.simulated(program, own_order)?;
        self.with_gpu(program, simulated)
    }

    /// Leaves out the lines on which runs on the driver that counts disagree.
    pub fn with_gpu(&self, program: &Program, simulated: Simulated) -> Result<Baseline, String> {
        let others = if self.gpu { 2 } else { 0 };
        let others: Vec<Ran> = (0..others).map(|_| self.natively(&[program]).remove(0)).collect();
        simulated.with(program, &others.iter().collect::<Vec<_>>())
    }

    /// Checks whether the program is valid on the simulated driver.
    pub fn simulated(&self, program: &Program, own_order: bool) -> Result<Simulated, String> {
        let natively = |pace| How { pace: Some(pace), simulated: true, ..How::default() };
        let paces = [Pace::Slow, Pace::Instant, Pace::Mixed(program.seed)];
        let mut runs = Vec::new();
        for pace in paces {
            let lingers = matches!(pace, Pace::Mixed(_));
            runs.push(self.run(program, &How { lingers, ..natively(pace) }));
            // Returns early if the program is not valid.
            Native::of(program, &runs)?;
        }
        // It is chance whether a thread comes after the end of a context: such a program relies on
        // no free.
        let unordered = (own_order && program.theme != "ends").then(|| {
            let how = How { frees_do_not_wait: true, ..natively(Pace::Slow) };
            self.run(program, &how)
        });
        Ok(Simulated { runs, unordered })
    }

    /// Runs the programs without the library on the driver that counts, one after the other.
    pub fn natively(&self, programs: &[&Program]) -> Vec<Ran> {
        let pace = Some(Pace::Mixed(programs[0].seed));
        self.run_all(programs, &How { pace, simulated: !self.gpu, ..How::default() })
    }

    /// Symbols of the driver functions that a program calls without the library.
    pub fn calls(&self, program: &Program) -> Vec<String> {
        let how = How { pace: Some(Pace::Instant), simulated: true, ..How::default() };
        self.run(program, &how);
        let report = std::fs::read_to_string(self.file("report")).unwrap_or_default();
        let call = |line: &str| line.strip_prefix("call ")?.split(' ').next().map(str::to_string);
        report.lines().filter_map(call).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn run(&self, program: &Program, how: &How<'_>) -> Ran {
        self.run_all(&[program], how).remove(0)
    }

    /// Runs programs of one theme, one after the other in one process.
    pub fn run_all(&self, programs: &[&Program], how: &How<'_>) -> Vec<Ran> {
        std::fs::create_dir_all(&self.scratch).expect("the scratch folder is writable");
        let numbered = |name: &str, number: usize| self.file(&format!("{name}.{number}"));
        let (report, out, err) = (self.file("report"), self.file("stdout"), self.file("stderr"));
        let _ = std::fs::remove_file(&report); // absent at first
        let own = std::env::current_exe().expect("the judge has a path");
        let mut command = Command::new(own);
        let create = |path: &Path| File::create(path).expect("the scratch folder is writable");
        command.arg("play");
        for (number, program) in programs.iter().enumerate() {
            let (file, log) = (numbered("program", number), numbered("log", number));
            std::fs::write(&file, program.text()).expect("the scratch folder is writable");
            let _ = std::fs::remove_file(&log); // absent at first
            command.arg(file).arg("--log").arg(log);
        }
        command.arg("--pace").arg(how.pace.unwrap_or(Pace::Slow).text());
        command.stdin(Stdio::null()).stdout(create(&out)).stderr(create(&err));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["CACHEALLOC", "SIM_", "LD_PRELOAD"].iter().any(|start| name.starts_with(start)) {
                command.env_remove(name.as_ref());
            }
        }
        for refused in &how.refused {
            command.arg("--refused").arg(refused);
        }
        let first = programs[0];
        if first.theme == "cached" && how.conf.is_none() {
            command.arg("--cached");
        }
        let is_oracle = !how.simulated && how.conf.is_none();
        if is_oracle {
            // Overwrites host memory when it is allocated and freed. A driver that reads it then
            // crashes here too, and not only under the library, whose own data may lie there.
            command.env("MALLOC_PERTURB_", "165");
        }
        match how.simulated {
            true => self.simulate(&mut command, first, how, &report),
            false => drop(command.arg("--gpu")),
        }
        if let Some(name) = self.gpu_name.as_ref().filter(|_| first.devices < 2) {
            command.env(VISIBLE, name);
        }
        if let Some(conf) = how.conf {
            // The limit is as large as the free memory of a device of this size once the first
            // context exists.
            let limit = format!("limit_mb:{}", first.memory_mb.saturating_sub(4));
            let snapshot = self.file("snapshot-%p-%n.pickle");
            let conf =
                format!("{},snapshot:{}", conf.replace("limit_mb:?", &limit), snapshot.display());
            command.env("LD_PRELOAD", &self.library).env("CACHEALLOC_CONF", conf);
            // Builds with broken rules let the scavenger run this often.
            command.env("CACHEALLOC_PASS_MS", "1");
            if !self.broken.is_empty() {
                command.env("CACHEALLOC_BREAK", &self.broken);
            }
        }
        let logs: Vec<PathBuf> =
            (0..programs.len()).map(|number| numbered("log", number)).collect();
        let patience = if is_oracle { PATIENCE_WITH_DRIVER } else { PATIENCE };
        let code = self.wait(&mut command, &logs, patience);
        let text = |path: &Path| {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        let report = text(&report);
        let problems = report.lines().filter(|line| line.starts_with("sim: "));
        let problems: Vec<String> = problems.map(str::to_string).collect();
        let (stderr, printed) = (text(&err), text(&out));
        // Kernels of different streams print in any order.
        let mut sorted: Vec<&str> = printed.split_inclusive('\n').collect();
        sorted.sort_unstable();
        let stdout = sorted.concat();
        if is_oracle {
            self.crashes.note(&stderr);
        }
        let ran = |number: usize| Ran {
            code,
            stdout: stdout.clone(),
            stderr: stderr.clone(),
            seen: log::read(&numbered("log", number).display().to_string()),
            problems: problems.clone(),
        };
        (0..programs.len()).map(ran).collect()
    }

    fn simulate(&self, command: &mut Command, program: &Program, how: &How<'_>, report: &Path) {
        command.env("LD_LIBRARY_PATH", &self.simulator);
        // Some waits of the library are bounded (docs/ordering.md 12), and no deadlock.
        let deadlock_ms = if program.theme == "waits" { "8000" } else { "1000" };
        command
            .env("SIM_REPORT", report)
            .env("SIM_DEADLOCK_MS", deadlock_ms)
            .env("SIM_POLLS_GROW", "1")
            .env("SIM_IDLE_MS", "20000");
        if program.memory_mb > 0 {
            // A memory limit of the library replaces a device of that size.
            let bounded = how.conf.is_some_and(|conf| conf.contains("gpu_memory_limit_mb"));
            let factor = if bounded { 2 } else { 1 };
            command.env("SIM_MEMORY_MB", (program.memory_mb * factor).to_string());
        }
        command.env("SIM_DEVICES", program.devices.max(1).to_string());
        // No other program shares these GPUs: a program that runs out of memory has no peer
        // processes to ask.
        let machine = u64::from(std::process::id()) << 32 | program.seed & 0xFFFF_FFFF;
        command.env("SIM_MACHINE", machine.to_string());
        if how.lingers && program.has_threads() {
            command.env("SIM_LINGER_US", "300");
            command.env("SIM_LINGER_SEED", (program.seed + 1).to_string());
        } else if program.theme == "together" && program.seed.is_multiple_of(2) {
            // Makes threads meet that allocate and free.
            command.env("SIM_LINGER_US", "200");
        }
        match program.theme.as_str() {
            // Makes waits and destroying calls slow.
            "ends" if !program.seed.is_multiple_of(3) => {
                let slow = ENDS_AND_WAITS.map(|symbol| format!("{symbol}@*=2"));
                command.env("SIM_PAUSE_MS", slow.join(","));
            }
            "uploads" => {
                for (name, value) in TAKEN_LATE {
                    command.env(name, value);
                }
            }
            _ => {}
        }
        if how.pace == Some(Pace::Slow) {
            command.env("SIM_WORK_NS", SLOW_WORK_NS);
        }
        if self.gpu {
            // Measured: queried at once, an untimed event after no work returns 600 or 0.
            command.env("SIM_RECORDS_TAKE_TIME", "1");
        }
        if how.conf.is_none() {
            command.env("SIM_FREES_JUDGED", "1").env("SIM_ONLY_WAITS_TELL", "1");
        }
        if how.frees_do_not_wait {
            command.env("SIM_FREES_WAIT", "0");
        }
    }

    /// Returns the exit code as a shell reports it, or [`HUNG`] if nothing was logged for the given
    /// time.
    fn wait(&self, command: &mut Command, logs: &[PathBuf], patience: Duration) -> i32 {
        let mut child = command.spawn().expect("the judge starts itself");
        let logged = || -> u64 {
            logs.iter().filter_map(|log| log.metadata().ok()).map(|it| it.len()).sum()
        };
        let (mut moved, mut bytes) = (Instant::now(), 0);
        loop {
            if let Some(status) = child.try_wait().expect("a child of this process") {
                return status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
            }
            if moved.elapsed() > patience && logged() > bytes {
                (moved, bytes) = (Instant::now(), logged());
            }
            // Making its context may take long on a busy machine.
            let patience = if bytes == 0 { PATIENCE } else { patience };
            let is_over = self.ending.has_come();
            if moved.elapsed() > patience || is_over {
                if !is_over {
                    write_stacks_of(child.id());
                }
                let _ = child.kill(); // it may have ended just now
                let _ = child.wait();
                return HUNG;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Exit code of a program that was killed because it had stopped.
pub const HUNG: i32 = 137;
/// Longest time without a log line. A busy machine may stall for several seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time without a log line on a GPU without the library, where some programs hang the
/// driver: such a program is left out.
const PATIENCE_WITH_DRIVER: Duration = Duration::from_secs(10);
const ENDS_AND_WAITS: [&str; 5] = [
    "cuEventSynchronize",
    "cuCtxDestroy_v2",
    "cuCtxDetach",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
];
/// Calls in which the driver takes device memory when something is used for the first time.
const TAKEN_LATE: [(&str, &str); 4] = [
    ("SIM_GRAPH_MEMORY_LATE", "1"),
    ("SIM_KERNEL_MB", "12"),
    ("SIM_LOCAL_MB", "8"),
    ("SIM_OBJECT_MB", "2"),
];
const POLL: Duration = Duration::from_micros(300);
/// Minimum duration of each piece of work. It is longer than any call, so that no work is complete
/// by chance.
const SLOW_WORK_NS: &str = "2000000";
