//! Support for the black-box tests: runs a program with the preloaded library on the simulated
//! driver, and returns its outcome.
//!
//! Nothing here links the library or the driver: both are files in the folder of the test's
//! executable, built by `make test` (or `cargo build --profile checked --workspace`) before the
//! tests run.

mod c;
#[path = "programs/dice.rs"]
pub mod dice;
#[path = "programs/driver.rs"]
pub mod driver;
#[path = "programs/functions.rs"]
pub mod functions;
mod limit;
#[path = "programs/order.rs"]
mod order;
mod skip;
pub mod tier;

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs};

use limit::Ended;

pub use c::{compile, compile_library, compile_with, link, source};
pub use skip::{has, lacks, skipped};

/// A program to run, by default under the library and on the simulated driver.
#[derive(Clone)]
pub struct Run {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(String, OsString)>,
    preload: Vec<PathBuf>,
    driver: Option<PathBuf>,
    folder: Option<PathBuf>,
    stderr_closed: bool,
    seconds_max: u32,
    tries_alone: usize,
}

impl Run {
    /// Runs a program of this machine, found on the path.
    pub fn program(program: impl Into<PathBuf>) -> Run {
        Run {
            program: program.into(),
            arguments: Vec::new(),
            // Processes of other tests must not be peer processes.
            variables: vec![("SIM_MACHINE".to_string(), machine().into())],
            preload: vec![library()],
            driver: Some(driver_folder()),
            folder: None,
            stderr_closed: false,
            seconds_max: 60,
            tries_alone: limit::TRIES_ALONE,
        }
    }

    /// Runs a C program of `tests/c`.
    pub fn c(source: &str) -> Run {
        Run::program(compile(source))
    }

    pub fn arg(mut self, argument: impl Into<OsString>) -> Run {
        self.arguments.push(argument.into());
        self
    }

    /// Adds several arguments, separated by spaces.
    pub fn args(self, arguments: &str) -> Run {
        arguments.split_whitespace().fold(self, Run::arg)
    }

    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Run {
        self.variables.push((name.to_string(), value.into()));
        self
    }

    /// Lets another program of this machine start it.
    pub fn started_by(mut self, program: &str, arguments: &str) -> Run {
        let own = std::mem::replace(&mut self.program, program.into());
        let words = arguments.split_whitespace().map(OsString::from);
        let before: Vec<OsString> = words.chain([own.into()]).collect();
        self.arguments.splice(0..0, before);
        self
    }

    /// Sets options of the library, as a user writes them.
    pub fn conf(self, settings: &str) -> Run {
        self.env("CACHEALLOC_CONF", settings)
    }

    /// Runs the program without the library.
    pub fn native(mut self) -> Run {
        self.preload.clear();
        self
    }

    /// Preloads exactly these libraries, in this order.
    pub fn preload(mut self, libraries: &[PathBuf]) -> Run {
        self.preload = libraries.to_vec();
        self
    }

    /// Runs the program without CUDA.
    pub fn no_driver(mut self) -> Run {
        self.driver = None;
        self
    }

    /// Uses the `libcuda.so.1` of another folder.
    pub fn driver(mut self, folder: impl Into<PathBuf>) -> Run {
        self.driver = Some(folder.into());
        self
    }

    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Run {
        self.folder = Some(folder.into());
        self
    }

    /// Starts the program with descriptor 2 closed.
    pub fn stderr_closed(mut self) -> Run {
        self.stderr_closed = true;
        self
    }

    /// Raises the time limit of a slow program.
    pub fn within(mut self, seconds: u32) -> Run {
        self.seconds_max = seconds;
        self
    }

    /// Sets the time after which a program that is expected to hang is ended. It is not run again.
    pub fn hangs_within(mut self, seconds: u32) -> Run {
        self.tries_alone = 0;
        self.within(seconds)
    }

    /// Runs the program to its end. A program that hangs is killed after a minute.
    pub fn output(&self) -> Ran {
        let report = scratch_file("report");
        let command = || {
            let _ = fs::remove_file(&report); // of a run before, at most
            let mut command = self.command();
            command.env("SIM_REPORT", &report);
            command
        };
        let limit = Duration::from_secs(self.seconds_max.into());
        let (output, threads) = match limit::run(command, limit, self.tries_alone) {
            Ended::Itself(output) => (output, String::new()),
            Ended::Killed(output, threads) => (output, threads),
        };
        let Output { status, stdout, stderr } = output;
        let text = fs::read_to_string(&report).unwrap_or_default();
        let _ = fs::remove_file(&report); // absent where the program made no driver call
        Ran {
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            code: status.code().or(status.signal().map(|signal| 128 + signal)),
            report: Report { text },
            threads,
        }
    }

    /// Returns the command of the program for a caller that handles its end.
    pub fn plain_command(&self) -> Command {
        let mut command = match self.stderr_closed {
            true => Command::new("sh"),
            false => Command::new(&self.program),
        };
        if self.stderr_closed {
            command.args(["-c", "exec \"$@\" 2>&-", "sh"]).arg(&self.program);
        }
        let list: Vec<_> = self.preload.iter().map(|path| path.display().to_string()).collect();
        command.env("LD_PRELOAD", list.join(":")).env_remove("CACHEALLOC");
        if let Some(driver) = &self.driver {
            command.env("LD_LIBRARY_PATH", driver);
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        command.args(&self.arguments).envs(variables);
        command
    }

    /// Returns the command of the program, without the variables of the test's environment that
    /// would affect it.
    fn command(&self) -> Command {
        let mut command = self.plain_command();
        let is_set = |name: &str| self.variables.iter().any(|(set, _)| set == name);
        for (name, _) in env::vars_os() {
            let ours = name.to_string_lossy();
            if ["CACHEALLOC", "SIM_"].iter().any(|start| ours.starts_with(start)) && !is_set(&ours)
            {
                command.env_remove(name);
            }
        }
        if self.preload.is_empty() && !is_set("LD_PRELOAD") {
            command.env_remove("LD_PRELOAD");
        }
        if self.driver.is_none() && !is_set("LD_LIBRARY_PATH") {
            command.env_remove("LD_LIBRARY_PATH");
        }
        command
    }
}

/// Returns the number of a simulated machine that no other test uses.
fn machine() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let number =
        u64::from(std::process::id()) << 20 | u64::from(COUNT.fetch_add(1, Ordering::Relaxed));
    number.to_string()
}

/// Outcome of a program.
#[derive(Debug)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    /// Exit code as in a shell: 128 and more after a signal, 137 if it hung.
    pub code: Option<i32>,
    pub report: Report,
    /// Threads of a program that hung, if none of them made progress any more.
    pub threads: String,
}

impl Ran {
    /// Fails with all output of the program, unless it succeeded.
    #[track_caller]
    pub fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "the program failed\n{self:#?}");
        self
    }

    /// Returns the lines that the library wrote.
    pub fn said(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("cachealloc")).collect()
    }
}

/// Report of the simulated driver; see `tests/sim/report.rs` for the lines.
#[derive(Debug)]
pub struct Report {
    pub text: String,
}

impl Report {
    /// Returns the number of calls of a driver function.
    pub fn calls(&self, function: &str) -> u64 {
        self.number(&format!("call {function} "))
    }

    pub fn races(&self) -> u64 {
        self.number("races ")
    }

    fn number(&self, start: &str) -> u64 {
        let found = self.text.lines().filter_map(|line| line.strip_prefix(start));
        found.filter_map(|rest| rest.parse::<u64>().ok()).sum()
    }
}

/// Path of the library under test, in the folder of the test's executable.
pub fn library() -> PathBuf {
    built("libcachealloc.so")
}

/// Path of the `cachealloc` command, in the folder of the test's executable and the library.
pub fn command() -> PathBuf {
    built("cachealloc")
}

/// Path of the library as users get it. Tests check its form rather than that of the build with
/// assertions.
pub fn release_library() -> PathBuf {
    let beside = target_folder().join("release/libcachealloc.so");
    assert!(beside.exists(), "{} is not built: run `make test`", beside.display());
    beside
}

/// Folder whose `libcuda.so.1` is the simulated driver.
pub fn driver_folder() -> PathBuf {
    let folder = built("libcuda.so").with_file_name("simulated");
    link(&folder, "libcuda.so.1", &built("libcuda.so"));
    folder
}

/// Folder of a simulated driver that exports only the functions of a driver of this version.
pub fn driver_of_version(version: u32) -> PathBuf {
    let later = |row: &[&str]| row[2].parse::<u32>().is_ok_and(|since| since > version);
    driver_without(&format!("simulated-{version}"), later)
}

/// Folder of this name with a simulated driver that lacks the functions of some rows of
/// `functions.csv`. In a copy of the file, their names are changed where the loader compares them.
pub fn driver_without(name: &str, lacks: impl Fn(&[&str]) -> bool) -> PathBuf {
    let folder = built("libcuda.so").with_file_name(name);
    let mut bytes = fs::read(built("libcuda.so")).expect("the driver is readable");
    let table = fs::read_to_string(root().join("src/preload/functions.csv"));
    let table = table.expect("the table of functions");
    let rows = table.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let lacking = rows.filter(|row| lacks(row));
    let lacking: HashSet<&[u8]> = lacking.map(|row| row[0].as_bytes()).collect();
    let mut start = 0;
    for place in 0..bytes.len() {
        if bytes[place] == 0 {
            if bytes[start..place].starts_with(b"cu") && lacking.contains(&bytes[start..place]) {
                bytes[start] = b'-';
            }
            start = place + 1;
        }
    }
    fs::create_dir_all(&folder).expect("target/ is writable");
    let draft = scratch_file("driver");
    fs::write(&draft, bytes).expect("target/ is writable");
    fs::rename(&draft, folder.join("libcuda.so.1")).expect("target/ is writable");
    folder
}

/// Returns whether files in this folder need no name while they are written.
pub fn has_unnamed_files(folder: &Path) -> bool {
    let mut options = fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_TMPFILE).open(folder).is_ok()
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the root").to_path_buf()
}

/// `target`, wherever it is.
pub fn target_folder() -> PathBuf {
    profile_folder().parent().expect("profiles lie in target/").to_path_buf()
}

/// Returns the name of a file that nothing else uses.
pub fn scratch_file(kind: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = target_folder().join("tests-c");
    fs::create_dir_all(&folder).expect("target/ is writable");
    folder.join(format!("{kind}.{}.{number}", std::process::id()))
}

fn built(name: &str) -> PathBuf {
    let path = profile_folder().join(name);
    assert!(path.exists(), "{} is not built: run `make test`", path.display());
    path
}

/// `target/<profile>`; the test's executable lies in `deps` below it.
fn profile_folder() -> PathBuf {
    let own = env::current_exe().expect("the test has a path");
    own.ancestors().nth(2).expect("target/<profile>/deps/<test>").to_path_buf()
}
