//! The GPUs of this machine, which the jobs share: each job plays its programs on one of them, and
//! those that use two devices on the first ones.

use std::path::Path;

/// Variable that names the GPUs that a process may use.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The names of the GPUs.
pub struct Gpus(Vec<String>);

impl Gpus {
    /// The GPUs that this process may use.
    pub fn visible() -> Gpus {
        let named = std::env::var(VISIBLE).ok();
        let all = || {
            let exists = |number: &usize| Path::new(&format!("/dev/nvidia{number}")).exists();
            (0..).take_while(exists).map(|number| number.to_string()).collect()
        };
        Gpus(match named.filter(|names| !names.is_empty()) {
            Some(names) => names.split(',').map(str::to_string).collect(),
            None => all(),
        })
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The name of a job's GPU.
    pub fn of_job(&self, job: u64) -> Option<String> {
        let count = self.0.len().max(1);
        self.0.get(job as usize % count).cloned()
    }
}
