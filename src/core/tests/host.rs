//! The host refuses memory for the tables: requests fail, and the driver may serve them. Nothing
//! else may happen.

use std::process::Command;

use cachealloc_core::{
    Address, Allocator, BlockId, Policy, Request, Requester, ReuseCondition, Step,
};

const HOST_KIB: u64 = 256 << 10;

struct Program {
    allocator: Allocator,
    live: Vec<BlockId>,
    end: u64,
}

impl Program {
    fn asks(&mut self) -> bool {
        let mut request = Request::new(512, Requester::Context);
        loop {
            match self.allocator.poll(&mut request) {
                Step::Done(allocation) => {
                    self.live.push(allocation.block);
                    return true;
                }
                Step::Reserve { bytes } => {
                    self.allocator.reserved(&mut request, Address(self.end), bytes);
                    self.end += bytes;
                }
                Step::OutOfMemory => return false,
                Step::QueryEvents => {}
                step => panic!("{step:?} without arenas"),
            }
        }
    }

    fn free(&mut self, count: usize) {
        for block in self.live.drain(self.live.len() - count..) {
            self.allocator.free(block, ReuseCondition::Everywhere);
        }
    }
}

/// Runs in a process with little memory.
#[test]
fn inside() {
    if std::env::var_os("HOST_IS_SMALL").is_none() {
        return;
    }
    // Allocated first, so that the test itself needs no more memory meanwhile.
    let live = Vec::with_capacity(4 << 20);
    let mut program = Program { allocator: Allocator::new(Policy::default()), live, end: 2 << 20 };
    while program.asks() {}
    let most = program.live.len();
    println!("{most} blocks");
    assert!(most > 100_000);
    let stats = program.allocator.stats();
    assert_eq!((stats.num_ooms, stats.allocation.all.current), (1, most as u64));
    assert!(!program.asks());
    assert!(program.allocator.hit(&Request::new(512, Requester::Context)).is_none());
    program.allocator.check();
    // The rows of freed blocks can be used again each time, except for a few that must remain.
    for _ in 0..3 {
        program.free(1_000);
        let served = (0..2_000).take_while(|_| program.asks()).count();
        assert!((800..=1_200).contains(&served), "{served}");
    }
    program.free(program.live.len());
    program.allocator.check();
    assert!(program.asks());
}

#[test]
fn without_memory_for_the_tables_requests_fail() {
    let program = std::env::current_exe().expect("this program");
    let limited = format!("ulimit -v {HOST_KIB} && exec \"$0\" --exact inside --nocapture");
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &limited]).arg(program).env("HOST_IS_SMALL", "1");
    let output = shell.env("RUST_TEST_THREADS", "1").output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("blocks"), "{output:?}");
}
