//! Memory and semaphores of others, objects that stand for several devices, and old launches.

mod common;
use common::*;

const VERSION: (&str, &str) = ("SIM_DRIVER_VERSION", "13050");
const N: usize = 1 << 16;
const PAGE: u64 = 2 << 20;
const FILE: u64 = 1;
const TIMELINE: u64 = 9;

type W = u64;
type Any = unsafe extern "C" fn(W, W, W, W, W, W, W, W) -> i32;

/// Calls a function by its symbol, all of whose arguments are words.
fn call(d: &Driver, symbol: &str, words: &[u64]) -> Result<(), i32> {
    let found = d.resolver.symbol(symbol).expect(symbol);
    let mut w = [0; 8];
    w[..words.len()].copy_from_slice(words);
    // SAFETY: a word holds any integer or pointer, and a function ignores those it does not take.
    check(unsafe {
        let any = std::mem::transmute::<*mut std::ffi::c_void, Any>(found);
        any(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])
    })
}

/// Makes such a call, and returns what it writes to its first argument.
fn made(d: &Driver, symbol: &str, rest: &[u64]) -> Result<u64, i32> {
    let made = place(&[]);
    call(d, symbol, &[&[made], rest].concat())?;
    // SAFETY: `place` made it.
    Ok(unsafe { (made as *const u64).read() })
}

/// A pointer to these words, with room for more, which stays valid.
fn place(words: &[u64]) -> u64 {
    let mut words = words.to_vec();
    words.resize(64, 0);
    words.leak().as_mut_ptr() as u64
}

/// A descriptor of memory, and an address at which this program has it.
fn file(bytes: usize) -> (u64, *mut u64) {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a C string, and a new mapping of the new file.
    unsafe {
        let file = libc::memfd_create(c"shared".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, bytes as libc::off_t), 0);
        let at = libc::mmap(std::ptr::null_mut(), bytes, both, libc::MAP_SHARED, file, 0);
        assert_ne!(at, libc::MAP_FAILED);
        (file as u64, at.cast())
    }
}

#[test]
fn another_api_has_the_same_bytes() {
    let outcome = child("another_api_has_the_same_bytes", &[], |d| {
        let (s, (file, theirs)) = (d.stream().unwrap(), file(N));
        let memory = made(d, "cuImportExternalMemory", &[place(&[FILE, file, 0, N as u64])]);
        let memory = memory.unwrap();
        let map = |offset, bytes| {
            made(d, "cuExternalMemoryGetMappedBuffer", &[memory, place(&[offset, bytes])])
        };
        assert_eq!(map(0, N as u64 + 1), Err(1));
        let (whole, part) = (map(0, N as u64).unwrap(), map(4104, 64).unwrap());
        d.launch("fill", s, &[whole, N as u64, 7, 0]).unwrap();
        d.synchronize().unwrap();
        // SAFETY: the mapping is that large, and nothing writes to it now.
        assert_eq!(unsafe { theirs.add(513).read_volatile() }, 7);
        // SAFETY: as above.
        unsafe { theirs.add(513).write_volatile(8) };
        assert_eq!(d.read_words(part, 2).unwrap(), [8, 7]);
        assert_eq!(d.free(part), Ok(()));
        assert_eq!(d.free_async(whole, s), Ok(()));
        d.synchronize().unwrap();
        assert_eq!(call(d, "cuDestroyExternalMemory", &[memory]), Ok(()));
        assert_eq!(call(d, "cuDestroyExternalMemory", &[memory]), Err(400));
        let nothing = made(d, "cuImportExternalMemory", &[place(&[2, 0, 0, N as u64])]);
        assert_eq!(nothing, Err(801), "a handle of another system");
    });
    outcome.clean();
}

#[test]
fn work_waits_for_another_api() {
    let outcome = child("work_waits_for_another_api", &[], |d| {
        let (s, x, (file, word)) = (d.stream().unwrap(), d.alloc(N).unwrap(), file(8));
        let semaphore = made(d, "cuImportExternalSemaphore", &[place(&[TIMELINE, file])]).unwrap();
        let list = place(&[semaphore]);
        let signal = |value: u64, stream| {
            call(d, "cuSignalExternalSemaphoresAsync", &[list, place(&[value]), 1, stream])
        };
        let wait = |value: u64, stream| {
            call(d, "cuWaitExternalSemaphoresAsync", &[list, place(&[value]), 1, stream])
        };
        wait(5, s).unwrap();
        d.launch("fill", s, &[x, 64, 7, 0]).unwrap();
        signal(6, s).unwrap();
        assert_eq!(d.query_stream(s), Err(600));
        // SAFETY: the mapping has one word.
        unsafe { word.write_volatile(5) };
        d.synchronize_stream(s).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { word.read_volatile() }, 6);
        // As one node each, in a capture and by hand.
        d.begin_capture(s, GLOBAL).unwrap();
        wait(6, s).unwrap();
        signal(7, s).unwrap();
        let graph = d.end_capture(s).unwrap();
        assert_eq!(d.graph_nodes_count(graph), Ok(2));
        let params = place(&[list, place(&[8]), 1]);
        let add = "cuGraphAddExternalSemaphoresSignalNode";
        let node = made(d, add, &[graph, 0, 0, params]).unwrap();
        let kind = place(&[]);
        call(d, "cuGraphNodeGetType", &[node, kind]).unwrap();
        // SAFETY: the driver has written a number there.
        assert_eq!(unsafe { (kind as *const u32).read() }, 8);
        assert_eq!(call(d, "cuDestroyExternalSemaphore", &[semaphore]), Ok(()));
    });
    outcome.clean();
}

#[test]
fn a_batch_in_a_graph_runs_in_its_order() {
    let outcome = child("a_batch_in_a_graph_runs_in_its_order", &[], |d| {
        const WRITE: u64 = 5;
        const WAIT: u64 = 4;
        let (s, word) = (d.stream().unwrap(), d.pinned(64).unwrap());
        let graph = made(d, "cuGraphCreate", &[0]).unwrap();
        let ops = [[WAIT, word, 1, 0, 0, 0], [WRITE, word, 2, 0, 0, 0], [WRITE, word, 3, 0, 0, 0]];
        let params = place(&[d.context(), 3, place(&ops.concat()), 0]);
        made(d, "cuGraphAddBatchMemOpNode", &[graph, 0, 0, params]).unwrap();
        assert_eq!(d.graph_nodes_count(graph), Ok(1));
        d.launch_graph(d.instantiate(graph).unwrap(), s).unwrap();
        assert_eq!(d.query_stream(s), Err(600));
        d.set_flag(word, 1);
        d.synchronize_stream(s).unwrap();
        assert_eq!(d.host_read(word), 3);
    });
    outcome.clean();
}

/// Measured: error 700 for a kernel that writes to a pool of the host, as to one of a NUMA node.
#[test]
fn a_pool_of_the_host_is_closed_to_devices() {
    let fill = |d: &Driver| {
        let s = d.stream().unwrap();
        let pool = made(d, "cuMemPoolCreate", &[place(&[1, 2])]).unwrap();
        if std::env::var_os("OPEN").is_some() {
            call(d, "cuMemPoolSetAccess", &[pool, place(&[1, 3]), 1]).unwrap();
        }
        let memory = made(d, "cuMemAllocFromPoolAsync", &[N as u64, pool, s]).unwrap();
        d.launch("fill", s, &[memory, N as u64, 7, 0]).unwrap();
        d.synchronize().unwrap();
    };
    let name = "a_pool_of_the_host_is_closed_to_devices";
    child(name, &[("OPEN", "1")], fill).clean();
    child(name, &[], fill).reports("sim: no access");
}

#[test]
fn an_imported_pool_shows_memory_and_makes_none() {
    let outcome = child("an_imported_pool_shows_memory_and_makes_none", &[], |d| {
        let s = d.stream().unwrap();
        let (export, import) = ("cuMemPoolExportPointer", "cuMemPoolImportPointer");
        let pool = made(d, "cuMemPoolCreate", &[place(&[1 | FILE << 32, 1])]).unwrap();
        let alloc = |pool| made(d, "cuMemAllocFromPoolAsync", &[N as u64, pool, s]);
        let memory = alloc(pool).unwrap();
        d.launch("fill", s, &[memory, N as u64, 7, 0]).unwrap();
        d.synchronize().unwrap();
        let default = made(d, "cuDeviceGetDefaultMemPool", &[0]).unwrap();
        let share = "cuMemPoolExportToShareableHandle";
        assert_eq!(made(d, share, &[default, FILE, 0]), Err(1));
        let file = made(d, share, &[pool, FILE, 0]).unwrap();
        let open = "cuMemPoolImportFromShareableHandle";
        let imported = made(d, open, &[file, FILE, 0]).unwrap();
        assert_eq!(alloc(imported), Err(1));
        assert_eq!(call(d, "cuDeviceSetMemPool", &[0, imported]), Err(1));
        let plain = [d.alloc(N).unwrap(), d.alloc_async(N, s).unwrap()];
        for address in plain {
            assert_eq!(call(d, export, &[place(&[]), address]), Err(1));
        }
        let data = place(&[]);
        call(d, export, &[data, memory]).unwrap();
        assert_eq!(made(d, import, &[pool, data]), Err(1), "a pool that is no import");
        let seen = made(d, import, &[imported, data]).unwrap();
        assert_eq!(d.read_words(seen, 1).unwrap(), [7]);
        d.launch("fill", s, &[memory, N as u64, 8, 0]).unwrap();
        d.synchronize().unwrap();
        assert_eq!(d.read_words(seen, 1).unwrap(), [8]);
        assert_eq!((d.free(seen), d.free(seen)), (Ok(()), Err(1)));
        assert_eq!(d.read_words(memory, 1).unwrap(), [8]);
    });
    outcome.clean();
}

#[test]
fn a_multicast_object_keeps_what_is_bound() {
    let variables = [VERSION, ("SIM_DEVICES", "2")];
    let outcome = child("a_multicast_object_keeps_what_is_bound", &variables, |d| {
        let free = || d.memory_info().unwrap().0;
        let before = free();
        let memory = made(d, "cuMemCreate", &[PAGE, place(&[1, 1]), 0]).unwrap();
        let multicast = made(d, "cuMulticastCreate", &[place(&[2, 2 * PAGE, FILE, 0])]).unwrap();
        let bind = |offset| call(d, "cuMulticastBindMem", &[multicast, offset, memory, 0, PAGE, 0]);
        call(d, "cuMulticastAddDevice", &[multicast, 0]).unwrap();
        assert_eq!(call(d, "cuMulticastAddDevice", &[multicast, 0]), Err(1));
        assert_eq!(bind(0), Err(1), "a device is missing");
        call(d, "cuMulticastAddDevice", &[multicast, 1]).unwrap();
        bind(0).unwrap();
        assert_eq!(bind(0), Err(1), "the place is taken");
        let plain = d.alloc(PAGE as usize).unwrap();
        let address = call(d, "cuMulticastBindAddr", &[multicast, PAGE, plain, PAGE, 0]);
        assert_eq!(address, Err(1), "memory of cuMemAlloc");
        d.free(plain).unwrap();
        call(d, "cuMemRelease", &[memory]).unwrap();
        assert_eq!(free(), before - PAGE as usize);
        call(d, "cuMulticastUnbind", &[multicast, 0, 0, PAGE]).unwrap();
        assert_eq!(free(), before);
        assert_eq!(call(d, "cuMemRelease", &[multicast]), Ok(()));
        assert_eq!(call(d, "cuMemRelease", &[multicast]), Err(1));
    });
    outcome.clean();
}

#[test]
fn copies_reach_logical_endpoints() {
    let outcome = child("copies_reach_logical_endpoints", &[VERSION], |d| {
        const POINTER: u64 = 1;
        const ENDPOINT: u64 = 2;
        let (s, from) = (d.stream().unwrap(), d.alloc(64).unwrap());
        let memory = made(d, "cuMemCreate", &[PAGE, place(&[1, 1]), 0]).unwrap();
        let address = made(d, "cuMemAddressReserve", &[PAGE, 0, 0, 0]).unwrap();
        call(d, "cuMemMap", &[address, PAGE, 0, memory, 0]).unwrap();
        call(d, "cuMemSetAccess", &[address, PAGE, place(&[1, 3]), 1]).unwrap();
        let id = made(d, "cuLogicalEndpointIdReserve", &[2]).unwrap();
        let properties = place(&[1, PAGE, 1]);
        assert_eq!(call(d, "cuLogicalEndpointCreate", &[id + 2, properties]), Err(1));
        call(d, "cuLogicalEndpointCreate", &[id, properties]).unwrap();
        call(d, "cuLogicalEndpointBindAddr", &[id, 0, 0, address, PAGE, 0]).unwrap();
        let sent = place(&[]);
        call(d, "cuLogicalEndpointExport", &[sent, id, 1]).unwrap();
        call(d, "cuLogicalEndpointImport", &[id + 1, sent, 1]).unwrap();
        d.write_words(from, &[7]).unwrap();
        let copy = place(&[POINTER, from, 0, ENDPOINT, id + 1, 4096, 8]);
        assert_eq!(call(d, "cuFabricCpyBatchAsync", &[1, copy, 0, 0]), Err(1));
        call(d, "cuFabricCpyBatchAsync", &[1, copy, 0, s]).unwrap();
        d.synchronize().unwrap();
        assert_eq!(d.read_words(address + 4096, 1).unwrap(), [7]);
    });
    outcome.clean();
}

#[test]
fn a_launch_on_two_devices_waits_for_both() {
    let variables = [("SIM_DEVICES", "2")];
    let outcome = child("a_launch_on_two_devices_waits_for_both", &variables, |d| {
        const ONE: u64 = 1 | 1 << 32;
        let mut made = Vec::new();
        for device in 0..2 {
            d.use_device(device).unwrap();
            let (s, x) = (d.stream().unwrap(), d.alloc(N).unwrap());
            made.push((s, x, d.kernel("late_fill").unwrap(), d.context()));
        }
        // Only the first stream has work before, and only the second is waited for.
        let fill = |index: usize, value, ns| {
            let (_, x, _, context) = made[index];
            d.set_context(context).unwrap();
            d.launch("late_fill", made[index].0, &[x, 64, value, ns]).unwrap();
        };
        fill(0, 1, 50 * MS);
        let params: Vec<u64> = made
            .iter()
            .flat_map(|(s, x, kernel, _)| {
                let arguments = place(&[*x, 64, 2, MS]);
                let list = place(&[0, 1, 2, 3].map(|index| arguments + 8 * index));
                [*kernel, ONE, ONE, ONE, 0, *s, list]
            })
            .collect();
        let launch = "cuLaunchCooperativeKernelMultiDevice";
        assert_eq!(call(d, launch, &[place(&params), 3, 0]), Err(1), "a default stream");
        call(d, launch, &[place(&params), 2, 0]).unwrap();
        d.set_context(made[1].3).unwrap();
        d.synchronize_stream(made[1].0).unwrap();
        assert!(d.virtual_ns().unwrap() > 50 * MS);
        for (_, x, _, context) in &made {
            d.set_context(*context).unwrap();
            assert_eq!(d.read_words(*x, 1).unwrap(), [2]);
        }
    });
    outcome.clean();
}
