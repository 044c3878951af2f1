//! A program that executes one line of input after the other, and answers each with a driver's
//! code. Several such processes share a device.
//!
//!     alloc MIB, async MIB, pitch MIB,
//!     create MIB, array MIB, pool MIB   allocates a block, which becomes the newest one
//!     context                           creates another context
//!     free N                            frees the block that was allocated as the N-th
//!     soon N                            frees it in another thread, after a while
//!     late N                            launches a kernel that writes it for a long time
//!     begin | end                       begins or ends a capture
//!     module                            loads a module
//!     wait                              waits for all work
//!     cancelled MIB                     allocates in a cancelled thread, which cannot end there
//!     primary DEVICE                    retains the device's primary context
//!     churn | over                      another thread creates and ends contexts, until `over`
//!     beside MIB                        `create` in a thread for which nothing waits
//!     files N                           leaves descriptors for N more files
//!     reset                             another thread ends the context, after a while

use std::ffi::c_void;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cachealloc_tests::driver::{Driver, Lookup, Outcome, RELAXED, Stream};
use cachealloc_tests::functions::Functions;

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_millis(300);
/// Virtual nanoseconds: longer than a test.
const LATE: u64 = 60_000_000_000;

macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each argument is a value, or a pointer of the program that outlives the call.
        cachealloc_tests::driver::check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

/// A block, by the call that frees it.
enum Block {
    Plain(u64),
    InOrder(u64),
    Physical(u64),
    Array(u64),
}

/// Whether the thread that makes contexts is to stop.
static OVER: AtomicBool = AtomicBool::new(false);

struct Program {
    driver: Driver,
    stream: Stream,
    capturing: Stream,
    blocks: Vec<Option<Block>>,
    churns: Vec<std::thread::JoinHandle<()>>,
}

fn main() {
    let driver = Driver::open(Lookup::ProcAddress);
    let driver = driver.unwrap_or_else(|error| {
        eprintln!("neighbours: {error}");
        std::process::exit(2);
    });
    let stream = driver.stream().expect("a stream");
    let capturing = driver.stream().expect("a stream");
    let mut program = Program { driver, stream, capturing, blocks: Vec::new(), churns: Vec::new() };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let code = program.obey(&line.expect("a line")).err().unwrap_or(0);
        println!("{code}");
        std::io::stdout().flush().expect("somebody reads");
    }
}

impl Program {
    fn obey(&mut self, line: &str) -> Outcome {
        let d = &self.driver;
        let mut words = line.split(' ');
        let what = words.next().expect("a word");
        let number: usize = words.next().map_or(0, |word| word.parse().expect("a number"));
        let bytes = number * MIB;
        let (mut handle, mut pitch) = (0, 0);
        let properties = [1_u32, 0, 1, 0, 0, 0, 0, 0];
        let block = match what {
            "alloc" => Block::Plain(d.alloc(bytes)?),
            "async" => Block::InOrder(d.alloc_async(bytes, self.stream)?),
            "pitch" => {
                call!(d, cuMemAllocPitch(&mut handle, &mut pitch, MIB, number, 4))?;
                Block::Plain(handle)
            }
            "create" => {
                call!(d, cuMemCreate(&mut handle, bytes, properties.as_ptr().cast(), 0))?;
                Block::Physical(handle)
            }
            "array" => {
                // Bytes of one channel, 1024 in a row.
                let descriptor = [1024_usize, number * 1024, 0x1_0000_0001];
                call!(d, cuArrayCreate(&mut handle, descriptor.as_ptr().cast()))?;
                Block::Array(handle)
            }
            "pool" => {
                let (mut pool, mut whole) = (0, [0_u32; 22]);
                whole[..8].copy_from_slice(&properties);
                call!(d, cuMemPoolCreate(&mut pool, whole.as_ptr().cast()))?;
                call!(d, cuMemAllocFromPoolAsync(&mut handle, bytes, pool, self.stream))?;
                Block::InOrder(handle)
            }
            "context" => {
                let before = d.context();
                d.create_context(0)?;
                return d.set_context(before);
            }
            "late" => {
                let Some(Some(Block::Plain(address))) = self.blocks.get(number) else {
                    return Err(-1);
                };
                return d.launch("late_fill", self.stream, &[*address, 4096, 7, LATE]);
            }
            "soon" => {
                let block = self.blocks[number].take();
                let Some(Block::Plain(address)) = block else { return Err(-1) };
                let (context, set) = (d.context(), d.functions.cuCtxSetCurrent);
                let free = d.functions.cuMemFree;
                std::thread::spawn(move || {
                    std::thread::sleep(SOON);
                    // SAFETY: the functions take numbers.
                    let codes = unsafe { (set(context), free(address)) };
                    assert_eq!(codes, (0, 0));
                });
                return Ok(());
            }
            "cancelled" => return in_a_cancelled_thread(d, bytes),
            "primary" => {
                let before = d.context();
                d.use_device(number as i32)?;
                return d.set_context(before);
            }
            "use" => return d.use_device(number as i32).map(drop),
            "churn" => {
                let (make, end) = (d.functions.cuCtxCreate, d.functions.cuCtxDestroy);
                let alloc = d.functions.cuMemAlloc;
                self.churns.push(std::thread::spawn(move || {
                    while !OVER.load(Ordering::Relaxed) {
                        let (mut context, mut address) = (0, 0);
                        // SAFETY: the pointers outlive the calls.
                        unsafe {
                            make(&mut context, 0, 0);
                            alloc(&mut address, MIB);
                            end(context);
                        }
                    }
                }));
                return Ok(());
            }
            "beside" => {
                let (context, set) = (d.context(), d.functions.cuCtxSetCurrent);
                let create = d.functions.cuMemCreate;
                std::thread::spawn(move || {
                    // SAFETY: the pointers outlive the calls.
                    unsafe { (set(context), create(&mut 0, bytes, properties.as_ptr().cast(), 0)) }
                });
                return Ok(());
            }
            "files" => {
                let all = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
                // SAFETY: a complete limit, and descriptors that this thread makes and closes.
                let most = unsafe {
                    assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &all), 0);
                    let free: Vec<i32> = (0..=number).map(|_| libc::dup(0)).collect();
                    free.iter().for_each(|file| assert_eq!(libc::close(*file), 0));
                    free[number]
                };
                let limit = libc::rlimit { rlim_cur: most as u64, rlim_max: 1024 };
                // SAFETY: a complete limit.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
                return Ok(());
            }
            "over" => {
                OVER.store(true, Ordering::Relaxed);
                self.churns.drain(..).for_each(|it| it.join().expect("it ends"));
                return Ok(());
            }
            "reset" => {
                let reset = d.functions.cuDevicePrimaryCtxReset;
                let again = d.functions.cuDevicePrimaryCtxRetain;
                std::thread::spawn(move || {
                    std::thread::sleep(SOON);
                    let mut context = 0;
                    // SAFETY: the function takes a number.
                    assert_eq!(unsafe { (reset(0), again(&mut context, 0)) }, (0, 0));
                });
                return Ok(());
            }
            "module" => return d.kernel("delay").map(drop),
            "begin" => return d.begin_capture(self.capturing, RELAXED),
            "end" => return d.end_capture(self.capturing).map(drop),
            "spin" => {
                std::thread::spawn(|| {
                    loop {
                        std::hint::spin_loop();
                    }
                });
                return Ok(());
            }
            "wait" => return d.synchronize(),
            "free" => {
                return match self.blocks[number].take().expect("it is there") {
                    Block::Plain(address) => d.free(address),
                    Block::InOrder(address) => d.free_async(address, self.stream),
                    Block::Physical(handle) => call!(d, cuMemRelease(handle)),
                    Block::Array(handle) => call!(d, cuArrayDestroy(handle)),
                };
            }
            other => panic!("{other}?"),
        };
        self.blocks.push(Some(block));
        Ok(())
    }
}

/// Cancels the thread, which then ends at its next cancellation point. On the plain driver the call
/// has no cancellation point.
fn in_a_cancelled_thread(driver: &Driver, bytes: usize) -> Outcome {
    struct Asked<'a> {
        functions: &'a Functions,
        context: u64,
        bytes: usize,
        code: i32,
    }
    extern "C" fn ask(asked: *mut c_void) -> *mut c_void {
        // SAFETY: the caller waits for this thread.
        let asked = unsafe { &mut *asked.cast::<Asked>() };
        let mut address = 0;
        // SAFETY: the thread cancels itself, and the pointers outlive the calls.
        unsafe {
            (asked.functions.cuCtxSetCurrent)(asked.context);
            libc::pthread_cancel(libc::pthread_self());
            asked.code = (asked.functions.cuMemAlloc)(&mut address, asked.bytes);
            pthread_setcancelstate(1, std::ptr::null_mut());
        }
        std::ptr::null_mut()
    }
    unsafe extern "C" {
        fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
    }
    let (functions, context) = (&driver.functions, driver.context());
    let mut asked = Asked { functions, context, bytes, code: -1 };
    // SAFETY: the thread ends before `asked`.
    unsafe {
        let mut thread = std::mem::zeroed();
        let argument = (&raw mut asked).cast();
        libc::pthread_create(&mut thread, std::ptr::null(), ask, argument);
        libc::pthread_join(thread, std::ptr::null_mut());
    }
    if asked.code == 0 { Ok(()) } else { Err(asked.code) }
}
