//! A program that does what it is told, one line after the other, and answers each with a driver's code: several of them
//! share a device.
//!
//!     alloc MIB | async MIB | pitch MIB | create MIB | array MIB | pool MIB     0, and the block is the newest one
//!     context                                                                   another one
//!     free N                                                                    the block made as the N-th
//!     soon N                                                                    the same by another thread, after a while
//!     late N                                                                    a kernel that writes it for long
//!     begin | end                                                               a capture
//!     wait                                                                      for all work

use std::io::{BufRead, Write};
use std::time::Duration;

use cachealloc_tests::driver::{Driver, Lookup, Outcome, RELAXED, Stream};

const MIB: usize = 1 << 20;
const SOON: Duration = Duration::from_millis(300);
/// Virtual nanoseconds: longer than a test.
const LATE: u64 = 60_000_000_000;

macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each argument is a value, or a place of the program that outlives the call.
        cachealloc_tests::driver::check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

/// How a block goes.
enum Block {
    Plain(u64),
    InOrder(u64),
    Physical(u64),
    Array(u64),
}

struct Program {
    driver: Driver,
    stream: Stream,
    capturing: Stream,
    blocks: Vec<Option<Block>>,
}

fn main() {
    let driver = Driver::open(Lookup::ProcAddress);
    let driver = driver.unwrap_or_else(|error| {
        eprintln!("neighbours: {error}");
        std::process::exit(2);
    });
    let stream = driver.stream().expect("a stream");
    let capturing = driver.stream().expect("a stream");
    let mut program = Program { driver, stream, capturing, blocks: Vec::new() };
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
            "begin" => return d.begin_capture(self.capturing, RELAXED),
            "end" => return d.end_capture(self.capturing).map(drop),
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
