//! Other processes on the same devices. Each stores the number of pages that it has taken in a
//! separate file in the folder `SIM_SHARED`.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

pub struct Share {
    folder: PathBuf,
    device: usize,
}

impl Share {
    /// Returns `None` if the process has the machine for itself.
    pub fn of(device: usize) -> Option<Share> {
        let folder = std::env::var_os("SIM_SHARED").filter(|folder| !folder.is_empty())?;
        let folder = PathBuf::from(folder);
        fs::create_dir_all(&folder).ok()?;
        Some(Share { folder, device })
    }

    /// Locks the folder until the file is closed: one process at a time reads and takes.
    pub fn turn(&self) -> Option<File> {
        let file = File::create(self.folder.join("turn")).ok()?;
        // SAFETY: the descriptor is open for the call.
        let code = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        (code == 0).then_some(file)
    }

    /// Stores the pages of this process. Others read it while they hold the lock.
    pub fn note(&self, pages: u64) {
        let name = format!("{}.{}", std::process::id(), self.device);
        let draft = self.folder.join(format!("{name}.draft"));
        if fs::write(&draft, pages.to_string()).is_ok() {
            // If this fails, tests in the other processes fail.
            let _ = fs::rename(&draft, self.folder.join(name));
        }
    }

    /// Pages of all other living processes.
    pub fn others(&self) -> u64 {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let pages = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (process, device) = name.split_once('.')?;
            let other = process.parse::<u32>().ok()? != std::process::id();
            let same_device = device.parse::<usize>().ok()? == self.device;
            let lives = PathBuf::from("/proc").join(process).exists();
            let counts = other && same_device && lives;
            counts.then(|| fs::read_to_string(entry.path()).ok()?.parse::<u64>().ok()).flatten()
        });
        pages.sum()
    }
}
