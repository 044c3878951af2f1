//! Processes on one device, which execute commands and answer.

use super::*;

/// Processes on one device of 1 GiB.
pub struct House {
    /// File in which the simulation counts the device's memory, and what it found.
    pub device: PathBuf,
    pub reports: PathBuf,
    pub program: Run,
}

pub struct Process {
    pub child: Child,
    pub told: ChildStdin,
    pub says: BufReader<ChildStdout>,
    /// Memory that the driver has given to the process, according to its own file.
    pub pages: PathBuf,
    pub blocks_count: usize,
}

impl House {
    pub fn new() -> House {
        let (device, reports) = (scratch_file("house"), scratch_file("reports"));
        std::fs::create_dir_all(&reports).expect("target/ is writable");
        let program = Run::program(env!("CARGO_BIN_EXE_neighbours")).env("SIM_SHARED", &device);
        House { device, reports, program: program.env("CACHEALLOC_PASS_MS", "20") }
    }

    pub fn process(&self, conf: &str) -> Process {
        self.process_with(conf, |run| run)
    }

    pub fn process_with(&self, conf: &str, more: impl FnOnce(Run) -> Run) -> Process {
        let number = std::fs::read_dir(&self.reports).expect("it was made").count();
        let report = self.reports.join(number.to_string());
        std::fs::write(&report, "").expect("target/ is writable");
        let run = more(self.program.clone().conf(conf).env("SIM_REPORT", report));
        let mut command = run.plain_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let told = child.stdin.take().expect("a pipe");
        let mut says = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        says.read_line(&mut line).expect("it says something");
        assert_eq!(line, "ready\n");
        let pages = self.device.join(format!("{}.0", child.id()));
        Process { child, told, says, pages, blocks_count: 0 }
    }

    /// Asserts that the simulation found nothing in any of the processes.
    #[track_caller]
    pub fn ends_clean(self) {
        for report in std::fs::read_dir(&self.reports).expect("it was made") {
            let text = std::fs::read_to_string(report.expect("an entry").path()).expect("a report");
            let problem = text.lines().find(|line| {
                line.starts_with("sim: ") || line.starts_with("races ") && *line != "races 0"
            });
            assert_eq!(problem, None, "{text}");
        }
        std::fs::remove_dir_all(self.reports).expect("it was made");
        std::fs::remove_dir_all(self.device).expect("it was made");
    }
}

impl Process {
    /// Keeps every process out of the simulated driver as long as the result lives. A thread stopped
    /// inside would keep the others out; a real driver finishes a call first.
    pub fn outside_of_the_driver(&self) -> std::fs::File {
        let turn = std::fs::File::create(self.pages.with_file_name("turn")).expect("the device");
        turn.lock().expect("the simulation's lock");
        turn
    }

    /// Stops the process outside of its driver.
    pub fn stops(&self) {
        let _turn = self.outside_of_the_driver();
        self.signal(libc::SIGSTOP);
        let threads = format!("/proc/{}/task", self.child.id());
        let is_stopped = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let is_over = || std::fs::read_dir(&threads).expect("/proc").flatten().all(is_stopped);
        while !is_over() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.told, "{line}").expect("it reads");
    }

    pub fn answer(&mut self) -> i32 {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("it answers");
        line.trim().parse().expect("a code")
    }

    pub fn has_answered_within(&self, longest: Duration) -> bool {
        let mut entry =
            libc::pollfd { fd: self.says.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the list has one entry.
        unsafe { libc::poll(&mut entry, 1, longest.as_millis() as i32) == 1 }
    }

    pub fn does(&mut self, line: &str) -> i32 {
        self.tell(line);
        self.answer()
    }

    /// Allocates a block and returns its number.
    #[track_caller]
    pub fn takes(&mut self, line: &str) -> usize {
        assert_eq!(self.does(line), 0, "{line}");
        self.blocks_count += 1;
        self.blocks_count - 1
    }

    #[track_caller]
    pub fn frees(&mut self, block: usize) {
        assert_eq!(self.does(&format!("free {block}")), 0);
    }

    /// Allocates this much in parts and frees it, so that the process has it in its cache.
    pub fn caches(&mut self, mib: usize, part_mib: usize) {
        let blocks: Vec<usize> =
            (0..mib / part_mib).map(|_| self.takes(&format!("alloc {part_mib}"))).collect();
        blocks.into_iter().for_each(|block| self.frees(block));
    }

    pub fn has_mib(&self) -> u64 {
        let text = std::fs::read_to_string(&self.pages).expect("the simulation writes it");
        2 * text.parse::<u64>().expect("a number")
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is a child of this one, and was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    #[track_caller]
    pub fn ends(mut self) {
        drop(self.told);
        assert!(self.child.wait().expect("it ends").success());
    }

    pub fn dies(mut self) {
        self.signal(libc::SIGKILL);
        self.child.wait().expect("it ends");
    }
}
