//! Reads what NVML reports for a process: the number that nvidia-smi shows. Only the command asks
//! NVML, never the library inside the program (`preload/driver_memory/measured.rs` says why).

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use cachealloc_statistics::breakdown::NvmlReading;

use crate::kernel::libraries::{UsedGpu, Watcher};

/// NVML's first answer takes as long as the driver takes to wake up.
const NVML_PATIENCE: Duration = Duration::from_secs(2);

/// Returns NVML's reading for the process on a GPU, and why it differs from what the process holds.
pub(crate) fn of_process(
    used: &UsedGpu,
    process: u32,
) -> (Option<NvmlReading>, Option<&'static str>) {
    let is_own = |number: u32| number == process;
    // A process that is alone on the GPU must be this one, even under another number: NVML may not
    // know the number's namespace.
    let own = match &used.processes[..] {
        [only] => Some(only),
        all => all.iter().find(|(number, _)| is_own(*number)),
    };
    let Some((number, bytes)) = own else {
        return (None, Some("NVML does not list the process here: other processes are included"));
    };
    if let Some(bytes) = bytes {
        return (Some(NvmlReading::Process(*bytes)), None);
    }
    let others = used.processes.iter().filter(|(other, _)| other != number);
    let others: Option<u64> = others.map(|(_, bytes)| *bytes).sum();
    match others.filter(|others| *others <= used.in_use_bytes) {
        Some(others) => (
            Some(NvmlReading::Others(others)),
            Some("NVML does not report the memory of the process"),
        ),
        None => (None, Some("NVML does not report the memory of each process: all are included")),
    }
}

/// Returns NVML's figures for these GPUs, or nothing if NVML does not respond in time.
pub(crate) fn used_gpus(uuids: Vec<String>) -> Vec<UsedGpu> {
    let (sender, answers) = channel();
    thread::spawn(move || {
        let watcher = Watcher::start();
        let used = |uuid: &String| watcher.as_ref()?.used(uuid);
        let _ = sender.send(uuids.iter().filter_map(used).collect());
    });
    answers.recv_timeout(NVML_PATIENCE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(processes: &[(u32, Option<u64>)], wanted: Option<NvmlReading>) {
        let used =
            UsedGpu { uuid: String::new(), in_use_bytes: 110, processes: processes.to_vec() };
        let (found, note) = of_process(&used, 7);
        assert_eq!(found, wanted);
        assert_eq!(note.is_none(), matches!(wanted, Some(NvmlReading::Process(_))));
    }

    #[test]
    fn nvml_process_is_matched() {
        says(&[(3, Some(1)), (7, Some(2))], Some(NvmlReading::Process(2)));
        // A different number, but the only process.
        says(&[(3, Some(1))], Some(NvmlReading::Process(1)));
        says(&[(3, None)], Some(NvmlReading::Others(0)));
        says(&[(3, Some(30)), (7, None)], Some(NvmlReading::Others(30)));
        says(&[(3, Some(300)), (7, None)], None);
        says(&[(3, None), (7, None)], None);
        // This process may be any of them, or none.
        says(&[(3, Some(1)), (4, Some(2))], None);
        says(&[], None);
    }
}
