//! Runs a program in processes of its own: natively, and under the library.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::compare::{Finding, Native};
use crate::ending::Ending;
use crate::grammar::Program;
use crate::log::{self, Seen};
use crate::play::Pace;

/// Where programs run, and with what.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The folder of the simulated driver: it says which programs are valid.
    pub simulator: PathBuf,
    /// The library under judgement.
    pub library: PathBuf,
    /// Whether the runs that count are on this machine's own driver.
    pub gpu: bool,
    /// For logs; each job has a folder of its own.
    pub scratch: PathBuf,
    /// A rule of the library that is left out, to see whether it is missed.
    pub broken: String,
    /// A run that is under way then is stopped: what it would have shown does not count.
    pub ending: Ending,
}

/// What came of one run.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub seen: Seen,
    /// What the simulation found wrong.
    pub problems: Vec<String>,
}

/// How one run is made.
#[derive(Clone, Default)]
struct How<'a> {
    pace: Option<Pace>,
    simulated: bool,
    /// The settings of the library; None: without it.
    conf: Option<&'a str>,
    refused: Option<&'a str>,
    frees_do_not_wait: bool,
    cached: bool,
}

/// What is known of a program without the library.
pub struct Baseline {
    pub native: Native,
    /// The same for modes in which a free orders nothing; None: the program leans on it.
    pub own_order: Option<Native>,
}

impl Machine {
    /// Whether the program is valid, and what counts.
    pub fn baseline(&self, program: &Program, own_order: bool) -> Result<Baseline, String> {
        self.write(program);
        let cached = program.theme == "cached";
        let natively = |pace| How { pace: Some(pace), simulated: true, cached, ..How::default() };
        let paces = [Pace::Slow, Pace::Instant, Pace::Mixed(program.seed)];
        let mut runs = Vec::new();
        for pace in paces {
            runs.push(self.run(program, &natively(pace)));
            // The first word on a program that is not valid.
            Native::of(program, &runs)?;
        }
        let unordered = own_order.then(|| {
            let how = How { frees_do_not_wait: true, ..natively(Pace::Slow) };
            self.run(program, &how)
        });
        let of_all = || -> Result<Native, String> {
            let native = Native::of(program, &runs)?;
            if !self.gpu {
                return Ok(native);
            }
            let how = How { simulated: false, ..natively(Pace::Mixed(program.seed)) };
            let (first, second) = (self.run(program, &how), self.run(program, &how));
            native.and(program, &first)?.and(program, &second)
        };
        let native = of_all()?;
        let own_order = match unordered {
            Some(ran) => of_all()?.and(program, &ran).ok(),
            None => None,
        };
        Ok(Baseline { native, own_order })
    }

    /// What differs under the library with these settings; None: it promises nothing here.
    pub fn judge(
        &self,
        program: &Program,
        baseline: &Baseline,
        conf: &str,
    ) -> Option<Vec<Finding>> {
        let relaxed = conf.contains("free_mode:relaxed");
        let native = match relaxed {
            true => baseline.own_order.as_ref()?,
            false => &baseline.native,
        };
        self.write(program);
        let refused: Vec<String> = native.refused(program).iter().map(usize::to_string).collect();
        let refused = refused.join(",");
        let pace = match (program.seed + conf.len() as u64) % 3 {
            0 => Pace::Mixed(program.seed + 1),
            _ => Pace::Slow,
        };
        let how = How {
            pace: Some(pace),
            simulated: !self.gpu,
            conf: Some(conf),
            refused: Some(&refused),
            ..How::default()
        };
        let ran = self.run(program, &how);
        Some(native.differences(program, conf, &ran))
    }

    /// The functions of the driver that a program calls natively, by symbol.
    pub fn calls(&self, program: &Program) -> Vec<String> {
        self.write(program);
        let cached = program.theme == "cached";
        let how = How { pace: Some(Pace::Instant), simulated: true, cached, ..How::default() };
        self.run(program, &how);
        let report = std::fs::read_to_string(self.file("report")).unwrap_or_default();
        let call = |line: &str| line.strip_prefix("call ")?.split(' ').next().map(str::to_string);
        report.lines().filter_map(call).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn write(&self, program: &Program) {
        std::fs::create_dir_all(&self.scratch).expect("the scratch folder is writable");
        std::fs::write(self.file("program"), program.text())
            .expect("the scratch folder is writable");
    }

    fn run(&self, program: &Program, how: &How<'_>) -> Ran {
        let (log, report) = (self.file("log"), self.file("report"));
        let (out, err) = (self.file("stdout"), self.file("stderr"));
        for old in [&log, &report] {
            let _ = std::fs::remove_file(old); // absent at first
        }
        let own = std::env::current_exe().expect("the judge has a path");
        let mut command = Command::new(own);
        let create = |path: &Path| File::create(path).expect("the scratch folder is writable");
        command.arg("play").arg(self.file("program")).arg("--log").arg(&log);
        command.arg("--pace").arg(how.pace.unwrap_or(Pace::Slow).text());
        command.stdin(Stdio::null()).stdout(create(&out)).stderr(create(&err));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["CACHEALLOC", "SIM_", "LD_PRELOAD"].iter().any(|start| name.starts_with(start)) {
                command.env_remove(name.as_ref());
            }
        }
        if let Some(refused) = how.refused.filter(|list| !list.is_empty()) {
            command.arg("--refused").arg(refused);
        }
        if how.cached {
            command.arg("--cached");
        }
        if how.simulated {
            self.simulate(&mut command, program, how, &report);
        }
        if let Some(conf) = how.conf {
            // As much as a device of this size has free when the first context is there.
            let limit = format!("limit_mb:{}", program.memory_mb.saturating_sub(4));
            let conf = conf.replace("limit_mb:?", &limit);
            command.env("LD_PRELOAD", &self.library).env("CACHEALLOC_CONF", conf);
            if !self.broken.is_empty() {
                command.env("CACHEALLOC_BREAK", &self.broken);
            }
        }
        let code = self.wait(&mut command);
        let text = |path: &Path| {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        let problems = text(&report)
            .lines()
            .filter(|line| line.starts_with("sim: "))
            .map(str::to_string)
            .collect();
        let seen = log::read(&log.display().to_string());
        Ran { code, stdout: text(&out), stderr: text(&err), seen, problems }
    }

    fn simulate(&self, command: &mut Command, program: &Program, how: &How<'_>, report: &Path) {
        command.env("LD_LIBRARY_PATH", &self.simulator);
        command
            .env("SIM_REPORT", report)
            .env("SIM_DEADLOCK_MS", "1000")
            .env("SIM_POLLS_GROW", "1")
            .env("SIM_IDLE_MS", "20000");
        if program.memory_mb > 0 {
            // A limit of ours stands in for a device that is as small.
            let bounded = how.conf.is_some_and(|conf| conf.contains("gpu_memory_limit_mb"));
            let factor = if bounded { 2 } else { 1 };
            command.env("SIM_MEMORY_MB", (program.memory_mb * factor).to_string());
        }
        command.env("SIM_DEVICES", program.devices.max(1).to_string());
        if program.theme == "together" && program.seed.is_multiple_of(2) {
            // Where several threads take and give back, they meet.
            command.env("SIM_LINGER_US", "200");
        }
        if how.pace == Some(Pace::Slow) {
            command.env("SIM_WORK_NS", SLOW_WORK_NS);
        }
        if how.conf.is_none() {
            command.env("SIM_FREES_JUDGED", "1");
        }
        if how.frees_do_not_wait {
            command.env("SIM_FREES_WAIT", "0");
        }
    }

    /// The exit code as a shell says it; 137 where it did not end.
    fn wait(&self, command: &mut Command) -> i32 {
        let mut child = command.spawn().expect("the judge starts itself");
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child of ours") {
                return status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
            }
            if begin.elapsed() > PATIENCE || self.ending.has_come() {
                let _ = child.kill(); // it may have ended just now
                let _ = child.wait();
                return 137;
            }
            std::thread::sleep(POLL);
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_micros(300);
/// Each piece of work takes so long at least, longer than any call: nothing is done by chance.
const SLOW_WORK_NS: &str = "2000000";
