//! Calls that the driver refuses, and calls that it fails for a while: the program gets the same
//! codes.

use cachealloc_tests::driver::{Driver, Outcome};

use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};

impl Actor<'_> {
    pub fn trouble(&mut self, line: &Line) -> Seen {
        match line.op {
            Op::Wrong if CRASHES.contains(&line.arg(0)) => None,
            Op::Wrong if line.arg(0) == RELEASED_TWICE => released_twice(self.driver()),
            Op::Wrong if line.arg(0) == DESTROY_PRIMARY => {
                let primary = self.slots().contexts.get(0)?;
                code(call!(self.driver(), cuCtxDestroy(primary.handle)))
            }
            Op::Wrong => code(wrong(self.driver(), line.arg(0))),
            Op::Fault => {
                let list = FAULTS[line.arg(0) as usize % FAULTS.len()];
                // A GPU cannot be made to fail calls.
                let _ = self.driver().fail(list);
                None
            }
            _ => {
                if let Some(fail) = self.driver().functions.sim_fail {
                    // SAFETY: null removes all failures.
                    unsafe { fail(std::ptr::null()) };
                }
                None
            }
        }
    }
}

fn wrong(driver: &Driver, what: u64) -> Outcome {
    let (mut place, mut size) = (0, 0);
    match what {
        0 => driver.alloc(0).map(drop),
        1 => driver.alloc(1 << 60).map(drop),
        2 => driver.free(WILD),
        3 => driver.free_async(WILD, 1),
        4 => driver.alloc_async(1 << 60, 1).map(drop),
        5 => call!(driver, cuMemAllocPitch(&mut place, &mut size, 1 << 40, 1 << 20, 4)),
        8 => call!(driver, cuMemCreate(&mut place, 1, [1_u64, 1, 0, 0].as_ptr().cast(), 0)),
        9 => call!(driver, cuMemHostUnregister(WILD)),
        10 => driver.free_pinned(WILD),
        11 => call!(driver, cuMemAllocManaged(&mut place, 4096, 0)),
        12 => call!(driver, cuMemAllocFromPoolAsync(&mut place, 4096, 0, 1)),
        13 => call!(driver, cuMemPoolDestroy(0)),
        14 => call!(driver, cuArrayCreate(&mut place, [0_u64, 0, 3 | 1 << 32].as_ptr().cast())),
        15 => call!(driver, cuMemUnmap(WILD, 2 << 20)),
        16 => call!(driver, cuMemAllocManaged(&mut place, 1 << 60, 1)),
        17 => driver.address_range(WILD).map(drop),
        _ => driver.free(0),
    }
}

/// Releases memory twice, and returns the code of the second call if it is not that of a handle
/// without memory. Does nothing on a GPU: the driver reads what was a handle, and that may be
/// something else by then.
fn released_twice(driver: &Driver) -> Seen {
    driver.races()?;
    let mut handle = 0;
    let properties = [1_u64, 1, 0, 0];
    call!(driver, cuMemCreate(&mut handle, 2 << 20, properties.as_ptr().cast(), 0)).ok()?;
    let first = call!(driver, cuMemRelease(handle));
    let second = first.and_then(|()| call!(driver, cuMemRelease(handle)));
    if second == Err(INVALID_VALUE) { None } else { code(second) }
}

const INVALID_VALUE: i32 = 1;
const WILD: u64 = 0x1230;
/// Measured: the driver dereferences an invalid handle of memory or of an array.
const CRASHES: [u64; 2] = [6, 18];
const RELEASED_TWICE: u64 = 7;
/// The number of the call that destroys a primary context, which only `cuDevicePrimaryCtxRelease`
/// may end.
const DESTROY_PRIMARY: u64 = 19;
/// The calls that the driver fails, and their codes.
pub const FAULTS: [&str; 14] = [
    "cuCtxRecordEvent@*=2",
    "cuCtxWaitEvent@*=2",
    "cuEventCreate@*=2",
    "cuMemHostAlloc@*=2",
    "cuStreamCreateWithPriority@*=2",
    "cuLaunchKernel@*=701",
    "cuMemcpyAsync@*=2",
    "cuMemAllocAsync@*=2",
    "cuMemAlloc_v2@*=2",
    "cuMemHostRegister_v2@*=2",
    "cuModuleLoadData@*=209",
    "cuMemCreate@*=2",
    "cuEventRecord@*=2",
    "cuStreamBeginCapture_v2@*=2",
];
