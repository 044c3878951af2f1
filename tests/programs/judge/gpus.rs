//! The GPUs of this machine, which the jobs share: each job plays its programs on one of them, and
//! those that use two devices on the first ones.

use std::path::Path;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::grammar::Program;

/// Variable that names the GPUs that a process may use.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Programs that make memory scarce need a GPU for themselves.
pub struct Gpus {
    names: Vec<String>,
    users: Vec<RwLock<()>>,
}

/// As long as it lives, no program with other needs begins.
pub enum Held<'a> {
    Shared { _users: Vec<RwLockReadGuard<'a, ()>> },
    Alone { _user: RwLockWriteGuard<'a, ()> },
}

impl Gpus {
    /// The GPUs that this process may use.
    pub fn visible() -> Gpus {
        let named = std::env::var(VISIBLE).ok();
        let all = || {
            let exists = |number: &usize| Path::new(&format!("/dev/nvidia{number}")).exists();
            (0..).take_while(exists).map(|number| number.to_string()).collect()
        };
        let names: Vec<String> = match named.filter(|names| !names.is_empty()) {
            Some(names) => names.split(',').map(str::to_string).collect(),
            None => all(),
        };
        Gpus { users: names.iter().map(|_| RwLock::default()).collect(), names }
    }

    pub fn count(&self) -> u64 {
        self.names.len() as u64
    }

    /// The name of a job's GPU.
    pub fn of_job(&self, job: u64) -> Option<String> {
        let count = self.names.len().max(1);
        self.names.get(job as usize % count).cloned()
    }

    /// Waits until the program may begin on the GPU with this name.
    pub fn hold(&self, name: &str, program: &Program) -> Held<'_> {
        let poisoned = "no job panics";
        let one = self.names.iter().position(|other| other == name);
        match one.map(|number| &self.users[number]) {
            Some(user) if program.wants_scarcity() => {
                Held::Alone { _user: user.write().expect(poisoned) }
            }
            Some(user) if program.devices < 2 => {
                Held::Shared { _users: vec![user.read().expect(poisoned)] }
            }
            _ => {
                let users = self.users.iter().map(|user| user.read().expect(poisoned));
                Held::Shared { _users: users.collect() }
            }
        }
    }
}
