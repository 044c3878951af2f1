//! Runs each test in a separate process, because the driver's state is per process.
//!
//! A test calls `child(..)` first. In the test process, that starts the same test again with the
//! driver preloaded, waits, and returns its outcome. In the child it runs the body.

#![allow(dead_code, unused_imports)]

pub mod graphs;

use std::path::PathBuf;
use std::process::Command;

pub use cachealloc_tests::driver::{
    Driver, GLOBAL, LEGACY, Lookup, PER_THREAD, RELAXED, THREAD_LOCAL, check,
};

pub struct Outcome {
    pub code: Option<i32>,
    pub report: String,
    pub output: String,
}

/// Runs `body` against the simulated driver, with more variables of the environment.
pub fn child(test: &str, variables: &[(&str, &str)], body: impl FnOnce(&Driver)) -> Outcome {
    if std::env::var("SIM_TEST").as_deref() == Ok(test) {
        let driver = Driver::open(Lookup::ProcAddress).expect("the simulated driver");
        body(&driver);
        std::process::exit(0);
    }
    let report = std::env::temp_dir().join(format!("sim-{}-{test}", std::process::id()));
    let _ = std::fs::remove_file(&report);
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("SIM_TEST", test)
        .env("SIM_REPORT", &report)
        .env("LD_LIBRARY_PATH", driver_folder())
        .envs(variables.iter().copied())
        .output()
        .expect("this test can start itself");
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let _ = std::fs::remove_file(&report);
    let shown = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Outcome { code: output.status.code(), report: text, output: shown.into_owned() }
}

impl Outcome {
    /// The body ran to its end and the simulation found nothing wrong.
    #[track_caller]
    pub fn clean(&self) {
        self.ran();
        assert!(!self.report.contains("sim: "), "{}", self.report);
    }

    #[track_caller]
    pub fn ran(&self) {
        assert_eq!(self.code, Some(0), "{}\n{}", self.output, self.report);
    }

    /// The body ran, and the simulation reports this.
    #[track_caller]
    pub fn reports(&self, what: &str) {
        self.ran();
        assert!(self.report.contains(what), "no {what:?} in:\n{}", self.report);
    }
}

/// The folder with `libcuda.so.1`, beside this test's executable.
fn driver_folder() -> PathBuf {
    let executable = std::env::current_exe().expect("a path");
    let profile =
        executable.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let built = profile.join("libcuda.so");
    assert!(built.exists(), "{} is missing: cargo build -p simulated-driver", built.display());
    let folder = profile.join("sim");
    std::fs::create_dir_all(&folder).expect("target/ is writable");
    let _ = std::os::unix::fs::symlink("../libcuda.so", folder.join("libcuda.so.1"));
    folder
}

pub const MS: u64 = 1_000_000;
