//! A forked child can take stacks, whatever other threads of its parent were doing.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use cachealloc_stacks::{module_at, note_unload};
use common::{build, compare, ours};

#[test]
fn the_child_of_a_fork() {
    let Some(path) = build("deep.cpp", "forked", &["-O2"]) else { return };
    let stop = AtomicBool::new(false);
    let in_parent = ours();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // Almost always inside a visit to the loader's list.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    note_unload();
                }
            });
        }
        for _ in 0..100 {
            // SAFETY: the child takes stacks and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                in_child(&in_parent, &path);
            }
            let mut status = 0;
            // SAFETY: a child of this process.
            unsafe { libc::waitpid(child, &mut status, 0) };
            let good = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7;
            if !good {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(good, "status {status:x}; e is a child that hung");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn in_child(in_parent: &[u64], path: &std::path::Path) -> ! {
    // SAFETY: ends this process when it hangs.
    unsafe { libc::alarm(10) };
    let good = std::panic::catch_unwind(|| {
        compare();
        let stack = ours();
        assert!(stack.ends_with(&in_parent[2..]));
        note_unload();
        let library = common::Library::open(path);
        library.run("virtuals", 5, compare);
        assert!(module_at(library.address("plain"), epoch()).is_some());
    });
    // SAFETY: ends this process.
    unsafe { libc::_exit(if good.is_ok() { 7 } else { 8 }) };
}

fn epoch() -> u32 {
    cachealloc_stacks::capture(&mut [0], 0..0).epoch
}
