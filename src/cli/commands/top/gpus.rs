//! The GPUs of the machine: their numbers, UUIDs, PCI addresses and free memory.
//!
//! A process numbers its visible devices from 0, so the numbers of two processes cannot be
//! compared. A process reports the UUID and the PCI address of each device. The number known to
//! users, nvidia-smi's, and the free memory come from NVIDIA's library (NVML). NVML may be slow if
//! the driver is in trouble, so a thread asks it, and a missing answer is tolerated.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::failure::{Failure, USAGE};
use crate::kernel::libraries::{WatchedGpu, Watcher};
use crate::live::Gpu;

/// NVML's first answer takes as long as the driver takes to wake up.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A thread that asks NVML until this value is dropped.
pub(super) struct Monitor {
    questions: Sender<()>,
    answers: Receiver<Vec<WatchedGpu>>,
    /// Whether the last question is still unanswered.
    waits: bool,
    last: Vec<WatchedGpu>,
}

impl Monitor {
    pub(super) fn start() -> Monitor {
        let (questions, asked) = channel();
        let (sender, answers) = channel();
        thread::spawn(move || {
            let watcher = Watcher::start();
            while asked.recv().is_ok() {
                let gpus = watcher.as_ref().map_or(Vec::new(), Watcher::gpus);
                if sender.send(gpus).is_err() {
                    return;
                }
            }
        });
        Monitor { questions, answers, waits: false, last: Vec::new() }
    }

    /// Returns the current state, or the previous one if a question is still unanswered.
    pub(super) fn look(&mut self) -> Vec<WatchedGpu> {
        let timeout = if self.waits { Duration::ZERO } else { TIMEOUT };
        if !self.waits {
            self.waits = self.questions.send(()).is_ok();
        }
        if let Ok(gpus) = self.answers.recv_timeout(timeout) {
            self.waits = false;
            self.last = gpus;
        }
        self.last.clone()
    }
}

/// A device of a process, with the machine's names for it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Named {
    /// nvidia-smi's number, or `0:1` for a part of a GPU. Without NVML it is the PCI address, and
    /// without that the process's own number.
    pub name: String,
    pub uuid: Option<String>,
    pub pci: Option<String>,
    pub total_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
}

impl Named {
    pub(super) fn of(device: i32, gpu: Option<&Gpu>, watched: &[WatchedGpu]) -> Named {
        let uuid = gpu.and_then(|gpu| gpu.uuid.as_deref());
        let own = watched.iter().find(|watched| Some(watched.uuid.as_str()) == uuid);
        let pci = gpu.and_then(|gpu| gpu.pci.clone());
        let name = match (own, &pci) {
            (Some(own), _) => own.name(),
            (None, Some(pci)) => brief(pci).to_string(),
            (None, None) => device.to_string(),
        };
        Named {
            name,
            uuid: uuid.map(str::to_string),
            pci,
            total_bytes: own.map(|own| own.total_bytes).or(gpu.and_then(|gpu| gpu.total_bytes)),
            free_bytes: own.map(|own| own.free_bytes),
        }
    }
}

impl WatchedGpu {
    fn name(&self) -> String {
        match self.part {
            None => self.index.to_string(),
            Some(part) => format!("{}:{part}", self.index),
        }
    }
}

/// Strips the domain, which is 0 nearly everywhere.
fn brief(pci: &str) -> &str {
    pci.strip_prefix("0000:").unwrap_or(pci)
}

/// GPUs as a user names them: by number, by the beginning of a UUID, or by PCI address. An empty
/// list selects all.
#[derive(Clone, Default)]
pub(super) struct Only(Vec<String>);

impl Only {
    /// Checks the names. `watched` are the GPUs that NVML reports, if any.
    pub(super) fn new(names: Vec<String>, watched: &[WatchedGpu]) -> Result<Only, Failure> {
        for name in &names {
            let lower = name.to_ascii_lowercase();
            let is_number = lower.split(':').all(|part| part.parse::<u32>().is_ok());
            let is_uuid = lower.starts_with("gpu-") || lower.starts_with("mig-");
            if !is_number && !is_uuid && address(&lower).is_none() {
                let problem = format!("no GPU matches {name:?}");
                let next = "name it by number, UUID (GPU-...) or PCI address (01:00.0)";
                return Err(Failure::new(problem).next(next).code(USAGE));
            }
            if is_number && watched.is_empty() {
                let problem = format!("cannot find GPU {name} by number: NVML is missing");
                return Err(Failure::new(problem).next("name it by UUID or PCI address"));
            }
        }
        Ok(Only(names))
    }

    pub(super) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn includes(&self, gpu: Option<&Gpu>, named: &Named) -> bool {
        self.is_all() || self.0.iter().any(|wanted| is_named(wanted, gpu, named))
    }
}

fn is_named(wanted: &str, gpu: Option<&Gpu>, named: &Named) -> bool {
    let wanted = wanted.to_ascii_lowercase();
    if wanted.starts_with("gpu-") || wanted.starts_with("mig-") {
        let whole = gpu.and_then(|gpu| gpu.whole_uuid.as_ref());
        let mut uuids = named.uuid.iter().chain(whole);
        return uuids.any(|uuid| uuid.to_ascii_lowercase().starts_with(&wanted));
    }
    if let (Some(wanted), Some(pci)) = (address(&wanted), named.pci.as_deref().and_then(address)) {
        return wanted == pci;
    }
    // The number of a GPU also selects all its parts.
    let whole = named.name.split_once(':').map(|(whole, _)| whole);
    named.name == wanted || (!wanted.contains('.') && whole == Some(wanted.as_str()))
}

/// Parses domain, bus, device and function. NVML writes a domain of eight digits, lspci none.
fn address(text: &str) -> Option<[u32; 4]> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':').map(|part| u32::from_str_radix(part, 16).ok());
    let (device, bus) = (parts.next()??, parts.next()??);
    let domain = parts.next().unwrap_or(Some(0))?;
    Some([domain, bus, device, u32::from_str_radix(function, 16).ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, uuid: &str, pci: &str) -> Named {
        Named {
            name: name.to_string(),
            uuid: Some(uuid.to_string()),
            pci: Some(pci.to_string()),
            total_bytes: None,
            free_bytes: None,
        }
    }

    #[test]
    fn by_number_uuid_and_address() {
        let whole = named("3", "GPU-3a5f0000-0000", "0000:41:00.0");
        let part = named("0:1", "MIG-77", "0001:C1:00.0");
        let of_part = Gpu {
            device: 0,
            uuid: part.uuid.clone(),
            whole_uuid: Some("GPU-99".to_string()),
            pci: part.pci.clone(),
            total_bytes: None,
        };
        for (wanted, is_whole, is_part) in [
            ("3", true, false),
            ("0", false, true),
            ("0:1", false, true),
            ("0:2", false, false),
            ("1", false, false),
            ("GPU-3a", true, false),
            ("gpu-3A5F", true, false),
            ("GPU-4", false, false),
            ("MIG-7", false, true),
            ("GPU-99", false, true),
            ("41:00.0", true, false),
            ("00000000:41:00.0", true, false),
            ("0000:41:00.1", false, false),
            ("1:c1:00.0", false, true),
            ("c1:00.0", false, false),
        ] {
            let only = Only(vec![wanted.to_string()]);
            assert_eq!(only.includes(None, &whole), is_whole, "{wanted}");
            assert_eq!(only.includes(Some(&of_part), &part), is_part, "{wanted}");
        }
        assert!(Only::default().includes(None, &whole));
    }

    #[test]
    fn names_without_a_gpu_are_refused() {
        let new = |name: &str| Only::new(vec![name.to_string()], &[]).map(|_| ());
        for name in ["", "x", "3x", "GPU", "01:00", "01:00.g"] {
            assert!(new(name).is_err(), "{name}");
        }
        for name in ["GPU-1", "mig-", "01:00.0", "0000:01:00.0"] {
            assert_eq!(new(name), Ok(()), "{name}");
        }
        assert!(new("0").is_err_and(|failure| failure.to_string().contains("NVML is missing")));
    }
}
