//! Checks what the machine puts between a program and the GPU: the kernel, a filter for system
//! calls, an MPS server.

use std::path::Path;
use std::{env, fs};

use super::finding::{Finding, Severity};

/// Variable with the folder of the pipes of an MPS server, and the folder without it.
const MPS_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const MPS_FOLDER: &str = "/tmp/nvidia-mps";

pub(super) fn examine() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = kernel(&read("/proc/sys/kernel/osrelease"));
    let filter = filter(&read("/proc/self/status"));
    [kernel, filter, mps()].into_iter().flatten().collect()
}

fn note(subject: &'static str, text: String) -> Option<Finding> {
    Some(Finding::new(Severity::Note, subject, text))
}

fn kernel(release: &str) -> Option<Finding> {
    let release = release.trim();
    let is_wsl = release.to_ascii_lowercase().contains("microsoft");
    is_wsl.then(|| note("kernel", format!("{release}: the library was not tried on WSL")))?
}

/// Reports a filter that programs started from here inherit. What it does with which call cannot be
/// read.
fn filter(status: &str) -> Option<Finding> {
    const FILTERED: &str = "2";
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    (mode.trim() == FILTERED).then(|| {
        let text = "a filter for system calls is active: a call of the library that it answers by killing the \
                    process ends the program";
        note("seccomp", text.to_string())
    })?
}

fn mps() -> Option<Finding> {
    let folder = env::var_os(MPS_VARIABLE).unwrap_or_else(|| MPS_FOLDER.into());
    let folder = Path::new(&folder);
    folder.join("control").exists().then(|| {
        let text = format!(
            "{} has the pipes of an MPS server: limits that it sets were not tried",
            folder.display()
        );
        note("MPS", text)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_of_wsl_is_known() {
        let line = |release| kernel(release).map(|finding| finding.line());
        assert_eq!(line("6.1.0-18-amd64\n"), None);
        let found = line("5.15.153.1-microsoft-standard-WSL2\n").expect("a finding");
        assert!(found.contains("5.15.153.1-microsoft-standard-WSL2: "), "{found}");
    }

    #[test]
    fn a_filter_is_known() {
        for (status, found) in [
            ("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", true),
            ("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n", false),
            ("", false),
        ] {
            assert_eq!(filter(status).is_some(), found, "{status}");
        }
    }
}
