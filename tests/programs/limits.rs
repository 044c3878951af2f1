//! Behaviour of a program under a limit, and under the strategies: `limits CASE`. Sizes are in MiB,
//! and codes are the driver's.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cachealloc_tests::driver::{Driver, Lookup, Outcome, Stream, check};

/// Calls a function of the driver that has no wrapper.
macro_rules! call {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: each argument is a value, or a pointer of the program that outlives the call.
        check(unsafe { ($driver.functions.$function)($($argument),*) })
    };
}

const MIB: usize = 1 << 20;
const ON_DEVICE: u64 = 1;
const ON_HOST: u64 = 2;
/// The second part of device 0.
const ON_PART: u64 = 6 | 0x100 << 32;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let case = arguments.next().expect("a case");
    let driver = Driver::open(Lookup::ProcAddress).expect("a driver");
    let place = if case == "kinds-of-a-part" { ON_PART } else { ON_DEVICE };
    let program = Program { d: &driver, place };
    match case.as_str() {
        "blocks" => program.blocks(),
        "kinds" => program.kinds(&KINDS),
        "kinds-of-a-part" => program.kinds(&["physical", "pool"]),
        "physical" => program.physical(),
        "pitch" => program.pitch(),
        "last-word" => program.last_word(),
        "contexts" => program.contexts(),
        "uncounted" => program.uncounted(),
        "async" => program.asynchronous(),
        "other-device" => program.other_device(),
        "race" => program.race(),
        "by-call" => program.by_call(),
        "before" => program.before(),
        "steps" => program.steps(arguments),
        _ => panic!("no such case"),
    }
}

struct Program<'a> {
    d: &'a Driver,
    /// The place of physical memory and of pools.
    place: u64,
}

fn set_limit() -> extern "C" fn(i32, u64) -> i32 {
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cachealloc_set_limit".as_ptr()) };
    assert!(!found.is_null(), "not under the library");
    // SAFETY: the function has this signature in the header.
    unsafe { std::mem::transmute(found) }
}

/// Kinds of memory, and the calls that free them.
const KINDS: [&str; 5] = ["pitched", "block", "physical", "array", "pool"];

impl Program<'_> {
    fn show(&self, what: &str) {
        let (free, total) = self.d.memory_info().expect("a context");
        let mut alone = 0;
        call!(self.d, cuMemGetInfo(std::ptr::null_mut(), &mut alone)).expect("a context");
        assert_eq!(alone, total, "the limit shows without the free bytes too");
        println!("{what}: {} of {} free", free / MIB, total / MIB);
    }

    fn said<T>(&self, what: &str, outcome: Outcome<T>) -> Option<T> {
        println!("{what}: {}", outcome.as_ref().err().unwrap_or(&0));
        outcome.ok()
    }

    fn reaching(&self, symbol: &str) -> u64 {
        self.d.calls(symbol).expect("the simulation")
    }

    fn blocks(&self) {
        let mut total = 0;
        call!(self.d, cuDeviceTotalMem(&mut total, 0)).expect("a device");
        println!("device: {}", total / MIB);
        self.show("at first");
        let a = self.said("60", self.d.alloc(60 * MIB)).expect("room");
        let mut refused = 7;
        let asked = self.reaching("cuMemAlloc_v2");
        let outcome = call!(self.d, cuMemAlloc(&mut refused, 60 * MIB));
        self.said("60 more", outcome);
        println!("pointer: {refused}, driver asked: {}", self.reaching("cuMemAlloc_v2") - asked);
        self.show("with 60");
        self.said("freed", self.d.free(a));
        self.show("freed");
        // The cached memory leaves no room, and is released.
        let b = self.said("90", self.d.alloc(90 * MIB)).expect("room");
        self.show("with 90");
        self.said("never", self.d.alloc(101 * MIB));
        self.said("small", self.d.alloc(MIB));
        self.said("freed", self.d.free(b));
        self.said("never", self.d.alloc(101 * MIB));
    }

    /// Memory of each kind counts, makes the cache release memory, is refused, and no longer counts
    /// when freed.
    fn kinds(&self, kinds: &[&str]) {
        for &kind in kinds {
            let cached = self.d.alloc(60 * MIB).expect("room");
            self.d.free(cached).expect("it is ours");
            self.said("never", self.make(kind, 200));
            let asked = self.reaching("cuMemAlloc_v2") + self.reaching("cuMemCreate");
            let again = self.d.alloc(60 * MIB).expect("room");
            let asked = self.reaching("cuMemAlloc_v2") + self.reaching("cuMemCreate") - asked;
            println!("driver asked: {asked}");
            self.d.free(again).expect("it is ours");
            let held = self.said(kind, self.make(kind, 60)).expect("room");
            self.show("held");
            self.refuse(kind, held);
            self.said("another", self.make(kind, 60));
            self.said("a block", self.d.alloc(60 * MIB));
            self.end(kind, held);
            self.d.synchronize().expect("no fault");
            self.show("ended");
        }
    }

    /// If the driver refuses to free memory, the memory still counts.
    fn refuse(&self, kind: &str, held: u64) {
        match kind {
            "pitched" => {
                self.d.fail("cuMemFree_v2@1=1");
                self.d.free(held).expect_err("it is refused");
            }
            "array" => {
                self.d.fail("cuArrayDestroy@1=1");
                call!(self.d, cuArrayDestroy(held)).expect_err("it is refused");
            }
            _ => {}
        }
    }

    fn make(&self, kind: &str, mib: usize) -> Outcome<u64> {
        let mut made = 0;
        match kind {
            "block" => return self.d.alloc(mib * MIB),
            "pitched" => {
                let mut pitch = 0;
                call!(self.d, cuMemAllocPitch(&mut made, &mut pitch, MIB, mib, 16))?;
            }
            "physical" => {
                let properties = [1, self.place, 0, 0];
                let create = self.d.functions.cuMemCreate;
                let list: *const u64 = properties.as_ptr();
                // SAFETY: the properties, 32 bytes, outlive the call.
                check(unsafe { create(&mut made, mib * MIB, list.cast(), 0) })?;
            }
            "array" => {
                // Floats, four to an element.
                let description = [1024, (mib * 64) as u64, 4 << 32 | 0x20];
                call!(self.d, cuArrayCreate(&mut made, description.as_ptr().cast()))?;
            }
            "pool" => {
                let pool = self.pool(self.place);
                call!(self.d, cuMemAllocFromPoolAsync(&mut made, mib * MIB, pool, 0))?;
            }
            _ => unreachable!("no such kind"),
        }
        Ok(made)
    }

    fn end(&self, kind: &str, made: u64) {
        let outcome = match kind {
            "block" | "pitched" => self.d.free(made),
            "physical" => call!(self.d, cuMemRelease(made)),
            "array" => call!(self.d, cuArrayDestroy(made)),
            "pool" => self.d.free_async(made, 0),
            _ => unreachable!("no such kind"),
        };
        self.said("end", outcome);
    }

    /// Creates a pool on device 0 or in host memory.
    fn pool(&self, location: u64) -> u64 {
        let mut properties = [0_u64; 11];
        properties[0] = 1; // pinned
        properties[1] = location;
        let mut pool = 0;
        call!(self.d, cuMemPoolCreate(&mut pool, properties.as_ptr().cast())).expect("a pool");
        pool
    }

    /// Physical memory stays allocated while it is mapped or referenced.
    fn physical(&self) {
        let bytes = 60 * MIB;
        let held = self.make("physical", 60).expect("room");
        let mut place = 0;
        call!(self.d, cuMemAddressReserve(&mut place, bytes, 0, 0, 0)).expect("addresses");
        call!(self.d, cuMemMap(place, bytes, 0, held, 0)).expect("a mapping");
        let mut again = 0;
        call!(self.d, cuMemRetainAllocationHandle(&mut again, place)).expect("a reference");
        self.d.fail("cuMemRelease@1=1");
        self.said("refused release", call!(self.d, cuMemRelease(held)));
        self.said("release", call!(self.d, cuMemRelease(held)));
        self.said("unmap", call!(self.d, cuMemUnmap(place, bytes)));
        self.show("one reference");
        self.d.fail("cuMemRelease@1=1");
        self.said("refused release", call!(self.d, cuMemRelease(again)));
        self.show("one reference");
        self.said("release", call!(self.d, cuMemRelease(again)));
        self.show("nothing");

        let second = self.make("physical", 60).expect("room");
        call!(self.d, cuMemMap(place, bytes, 0, second, 0)).expect("a mapping");
        self.said("release", call!(self.d, cuMemRelease(second)));
        self.show("mapped");
        self.said("another", self.make("physical", 60));
        self.d.fail("cuMemUnmap@1=1");
        self.said("refused unmap", call!(self.d, cuMemUnmap(place, bytes)));
        self.show("mapped");
        self.said("unmap", call!(self.d, cuMemUnmap(place, bytes)));
        self.show("nothing");
    }

    /// Rows of one byte: only the driver knows the pitch.
    fn pitch(&self) {
        let (mut made, mut pitch) = (7, 0);
        let rows = 100 * MIB / 256;
        let outcome = call!(self.d, cuMemAllocPitch(&mut made, &mut pitch, 1, rows, 16));
        self.said("rows", outcome);
        println!("pointer: {made}");
        self.show("refused");
        println!("in use: {}", self.d.alloc(100 * MIB).is_err());
    }

    /// A request is served if the cache can release enough. Refused and invalid requests leave no
    /// trace.
    fn last_word(&self) {
        let cached = self.d.alloc(60 * MIB).expect("room");
        self.d.free(cached).expect("it exists");
        let (mut made, mut pitch, mut none) = (0, 7, 0);
        let ask = |made: &mut u64, pitch: &mut usize, rows_mib: usize| {
            call!(self.d, cuMemAllocPitch(made, pitch, 1, rows_mib * MIB / 512, 16))
        };
        self.said("rows", ask(&mut made, &mut pitch, 80));
        self.d.free(made).expect("it exists");
        pitch = 7;
        self.said("too many", ask(&mut made, &mut pitch, 200));
        println!("pitch: {pitch}");

        let (bytes, held, mut place) = (60 * MIB, self.make("physical", 60).expect("room"), 0);
        call!(self.d, cuMemAddressReserve(&mut place, bytes, 0, 0, 0)).expect("addresses");
        call!(self.d, cuMemMap(place, bytes, 0, held, 0)).expect("a mapping");
        self.said("release", call!(self.d, cuMemRelease(held)));
        self.said("again", call!(self.d, cuMemRelease(held)));
        self.said("unmap", call!(self.d, cuMemUnmap(place, bytes)));
        self.show("nothing");

        let (list, odd) = ([1, 0, 1, 0, 0, 0, 0, 0], 200 * MIB + 1);
        let properties: *const i32 = list.as_ptr();
        self.said("odd", call!(self.d, cuMemCreate(&mut none, odd, properties.cast(), 0)));
        let asked = self.reaching("cuMemCreate");
        self.said("even", call!(self.d, cuMemCreate(&mut none, 200 * MIB, properties.cast(), 0)));
        println!("driver asked: {}", self.reaching("cuMemCreate") - asked);
    }

    fn contexts(&self) {
        let first = self.d.context();
        let second = self.d.create_context(0).expect("a second context");
        self.said("block", self.d.alloc(40 * MIB));
        self.said("array", self.make("array", 40));
        self.show("held");
        self.d.set_context(first).expect("the first context");
        self.show("held by the other");
        self.said("no room", self.d.alloc(40 * MIB));
        call!(self.d, cuCtxDestroy(second)).expect("it exists");
        self.show("ended");
        self.said("room", self.d.alloc(90 * MIB));
        call!(self.d, cuDevicePrimaryCtxReset(0)).expect("a device");
        self.d.use_device(0).expect("the context again");
        self.show("reset");
    }

    /// Memory that need not be on the device does not count.
    fn uncounted(&self) {
        let mut managed = 0;
        self.said("managed", call!(self.d, cuMemAllocManaged(&mut managed, 150 * MIB, 1)));
        self.said("pinned", self.d.pinned(150 * MIB));
        let properties = [1, 0, 2, 0, 0, 0, 0, 0];
        let list: *const i32 = properties.as_ptr();
        let mut made = 0;
        // SAFETY: the properties, 32 bytes, outlive the call.
        let created =
            check(unsafe { (self.d.functions.cuMemCreate)(&mut made, 150 * MIB, list.cast(), 0) });
        self.said("physical, on the host", created);
        let pool = self.pool(ON_HOST);
        let pooled = call!(self.d, cuMemAllocFromPoolAsync(&mut made, 150 * MIB, pool, 0));
        self.said("pool, on the host", pooled);
        self.said("block", self.d.alloc(90 * MIB));
    }

    fn asynchronous(&self) {
        let stream: Stream = 0;
        let first = self.said("60", self.d.alloc_async(60 * MIB, stream)).expect("room");
        let mut refused = 7;
        self.said("60 more", call!(self.d, cuMemAllocAsync(&mut refused, 60 * MIB, stream)));
        println!("pointer: {refused}");
        self.said("freed", self.d.free_async(first, stream));
        self.d.synchronize().expect("no fault");
        let second = self.said("90", self.d.alloc_async(90 * MIB, stream)).expect("room");
        self.show("with 90");
        self.said("freed", self.d.free_async(second, stream));
    }

    /// The device of the stream serves the request, whichever context is current.
    fn other_device(&self) {
        let stream = self.d.stream().expect("a stream");
        self.d.use_device(1).expect("two devices");
        self.said("60 here", self.d.alloc(60 * MIB));
        let there = self.said("60 there", self.d.alloc_async(60 * MIB, stream));
        self.show("here");
        self.said("60 more there", self.d.alloc_async(60 * MIB, stream));
        self.d.use_device(0).expect("a device");
        self.show("there");
        self.said("freed", self.d.free_async(there.unwrap_or(0), stream));
    }

    /// The limit is set and removed while the program runs.
    fn by_call(&self) {
        let set = set_limit();
        let mib = MIB as u64;
        let block = self.d.alloc(60 * MIB).expect("room");
        println!("set: {}", set(0, 100 * mib));
        self.show("with a block");
        self.said("60 more", self.d.alloc(60 * MIB));
        println!("set: {}", set(0, 30 * mib));
        self.show("with less");
        self.said("1 more", self.d.alloc(MIB));
        self.d.free(block).expect("it is held");
        self.show("freed");
        self.said("30", self.d.alloc(30 * MIB));
        println!("set: {}", set(0, 0));
        self.said("60 more", self.d.alloc(60 * MIB));
        self.show("without");
        println!("another device: {}, no device: {}", set(1, mib), set(-1, mib));
    }

    /// Memory that the driver served before there was a limit.
    fn before(&self) {
        let set = set_limit();
        let mut managed = 0;
        self.said("managed", call!(self.d, cuMemAllocManaged(&mut managed, 50 * MIB, 1)));
        for kind in KINDS {
            println!("{kind}");
            let early = self.make(kind, 60).expect("room");
            println!("set: {}", set(0, 100 * MIB as u64));
            self.show("held");
            self.said("another", self.make(kind, 60));
            self.end(kind, early);
            self.d.synchronize().expect("no fault");
            self.show("ended");
            println!("set: {}", set(0, 0));
        }
    }

    /// Eight threads request 30 of 100 at the same time: three may get it.
    fn race(&self) {
        const THREADS: usize = 8;
        let most = AtomicUsize::new(0);
        for _ in 0..20 {
            let (had, meet) = (AtomicUsize::new(0), Barrier::new(THREADS));
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        meet.wait();
                        let made = self.make("physical", 30);
                        had.fetch_add(usize::from(made.is_ok()), Ordering::Relaxed);
                        meet.wait();
                        made.map(|made| call!(self.d, cuMemRelease(made)))
                    });
                }
            });
            most.fetch_max(had.into_inner(), Ordering::Relaxed);
        }
        println!("at most {}", most.into_inner());
        self.show("at the end");
    }

    /// Runs steps one after the other: `a NAME KIB`, `s NAME KIB` (in stream order), `f NAME`, `z`
    /// (prints the free bytes).
    fn steps(&self, mut words: impl Iterator<Item = String>) {
        let mut alive = Vec::new();
        while let Some(word) = words.next() {
            let before = self.reaching("cuMemAlloc_v2") + self.reaching("cuMemAllocAsync");
            if word == "z" {
                self.show("z");
                continue;
            }
            let name = words.next().expect("a name");
            if word == "f" {
                let place = alive.iter().position(|(known, _)| *known == name).expect("alive");
                let freed = self.reaching("cuMemFree_v2") + self.reaching("cuMemFreeAsync");
                let code = self.d.free(alive.remove(place).1).err().unwrap_or(0);
                let freed = self.reaching("cuMemFree_v2") + self.reaching("cuMemFreeAsync") - freed;
                println!("f {name}: {code}, {freed} calls");
                continue;
            }
            let bytes = words.next().expect("a size").parse::<usize>().expect("a size") << 10;
            let made = match word.as_str() {
                "a" => self.d.alloc(bytes),
                "s" => self.d.alloc_async(bytes, 0),
                _ => panic!("no such step"),
            };
            let after = self.reaching("cuMemAlloc_v2") + self.reaching("cuMemAllocAsync");
            println!(
                "{word} {name}: {}, {} calls",
                made.as_ref().err().unwrap_or(&0),
                after - before
            );
            alive.extend(made.ok().map(|address| (name, address)));
        }
    }
}
