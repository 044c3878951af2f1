//! The end of the process: the rest of the work, the report, or a deadlock.

use std::io::Write;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::call;
use crate::model::memory::allocations::Kind;
use crate::model::world::{self, World, config};

/// Arranges for the report to be written; once, by the first call.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the function is an ordinary one of this library, which is never unloaded
        // by the programs that we run; it takes nothing.
        unsafe { libc::atexit(at_exit) };
    });
}

extern "C" fn at_exit() {
    // A forked child has a copy of the lock, perhaps held, and nothing to report.
    if call::forked() {
        return;
    }
    let mut world = world::lock();
    // Runs work in flight to its end, as far as possible, so that its races are found.
    world.poll_spinners();
    while world.step() {}
    if config().teardown_ms > 0 {
        ENDED.store(true, Ordering::SeqCst);
        drop(world);
        std::thread::sleep(Duration::from_millis(config().teardown_ms));
        world = world::lock();
    }
    write_report(&world);
}

/// Reports a call during or after the end of the driver, at which a real one may crash.
pub fn refuse_after_end(function: &str) {
    if ENDED.load(Ordering::SeqCst) {
        let mut world = world::lock();
        world.report.problem(format!("sim: {function} was called after the end"));
        write_report(&world);
        exit_at_once(AFTER_END_EXIT_CODE)
    }
}

static ENDED: AtomicBool = AtomicBool::new(false);

pub fn deadlock(world: &mut World, function: &str) -> ! {
    let ms = config().deadlock_ms;
    let line = format!("sim: deadlock: {function} waited {ms} ms or more and nothing moved");
    world.report.problem(line);
    write_report(world);
    exit_at_once(DEADLOCK_EXIT_CODE)
}

/// Ends the process as a crash would, without running anything else: the library hooks `_exit`, and
/// might wait for this lock there.
fn exit_at_once(code: i32) -> ! {
    // SAFETY: this call takes a number, and does not return.
    unsafe { libc::syscall(libc::SYS_exit_group, code) };
    unreachable!("the process has ended")
}

pub fn report_text(world: &World) -> String {
    world.report.text(world.engine.now, &leaks(world))
}

fn write_report(world: &World) {
    let Some(path) = &config().report else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Ok(mut file) = file {
        // A test that requests a report fails if it is missing.
        let _ = file.write_all(report_text(world).as_bytes());
    }
}

fn leaks(world: &World) -> Vec<String> {
    let kept = |kind: Kind| !matches!(kind, Kind::Global | Kind::Registered { .. } | Kind::Graph);
    let leaked = world.memory.live().filter(|allocation| kept(allocation.kind));
    leaked
        .map(|a| format!("leak {:#x} {} bytes {:?}", a.base, a.bytes, a.kind))
        .take(LEAK_LINES_MAX)
        .collect()
}

const DEADLOCK_EXIT_CODE: i32 = 86;
const AFTER_END_EXIT_CODE: i32 = 87;
const LEAK_LINES_MAX: usize = 100;
