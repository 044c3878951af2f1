//! Captures of CUDA 13: into a graph that was captured before, and into a command list.

mod common;
use common::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const N: u64 = 4096;
const VERSION: [(&str, &str); 1] = [("SIM_DRIVER_VERSION", "13050")];

/// Answer of the callback, and how often it was called.
static ANSWER: AtomicI32 = AtomicI32::new(0);
static TOLD: AtomicU64 = AtomicU64::new(0);

type Callback = unsafe extern "C" fn(u64, u64, *const u32, *const u32, u32) -> i32;

/// Checks that both parameters are of the kind that the data names.
unsafe extern "C" fn changed(
    data: u64,
    _node: u64,
    before: *const u32,
    now: *const u32,
    status: u32,
) -> i32 {
    // SAFETY: both point to structures that begin with the kind of the node.
    let kinds = unsafe { (u64::from(*before), u64::from(*now)) };
    assert_eq!((kinds, status), ((data, data), 0));
    TOLD.fetch_add(1, Ordering::SeqCst);
    ANSWER.load(Ordering::SeqCst)
}

fn recapture(d: &Driver, stream: u64, graph: u64) -> Result<(), i32> {
    const KERNEL: *const c_void = std::ptr::null(); // kind 0
    let callback: Callback = changed;
    let begin = d.functions.cuStreamBeginRecaptureToGraph;
    // SAFETY: the function calls back with these arguments.
    check(unsafe { begin(stream, THREAD_LOCAL, graph, callback as *const c_void, KERNEL) })
}

/// Captures a fill of each word of a list with a value.
fn capture(d: &Driver, stream: u64, x: u64, values: &[u64]) -> u64 {
    d.begin_capture(stream, THREAD_LOCAL).unwrap();
    for value in values {
        d.launch("fill", stream, &[x, N, *value, 0]).unwrap();
    }
    d.end_capture(stream).unwrap()
}

#[test]
fn changed_parameters_replace_those_of_the_node() {
    let outcome = child("changed_parameters_replace_those_of_the_node", &VERSION, |d| {
        let (s, x) = (d.stream().unwrap(), d.alloc(N as usize).unwrap());
        let graph = capture(d, s, x, &[1, 2]);
        let older = d.instantiate(graph).unwrap();
        recapture(d, s, graph).unwrap();
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        d.launch("fill", s, &[x, N, 3, 0]).unwrap();
        assert_eq!(d.end_capture(s), Ok(graph));
        assert_eq!(TOLD.load(Ordering::SeqCst), 1);
        assert_eq!(d.graph_nodes_count(graph), Ok(2));
        let newer = d.instantiate(graph).unwrap();
        for (executable, value) in [(newer, 3), (older, 2)] {
            d.launch_graph(executable, s).unwrap();
            d.synchronize().unwrap();
            assert_eq!(d.read_words(x, 1).unwrap(), [value]);
        }
    });
    outcome.clean();
}

#[test]
fn the_program_may_refuse_a_change() {
    let outcome = child("the_program_may_refuse_a_change", &VERSION, |d| {
        let (s, x) = (d.stream().unwrap(), d.alloc(N as usize).unwrap());
        let graph = capture(d, s, x, &[1]);
        ANSWER.store(1, Ordering::SeqCst);
        recapture(d, s, graph).unwrap();
        assert_eq!(d.launch("fill", s, &[x, N, 3, 0]), Err(918));
        assert_eq!(d.end_capture(s), Err(901));
        assert_eq!(d.destroy_graph(graph), Ok(()));
    });
    outcome.ran();
}

#[test]
fn another_topology_fails() {
    let outcome = child("another_topology_fails", &VERSION, |d| {
        let (s, x) = (d.stream().unwrap(), d.alloc(N as usize).unwrap());
        let graph = capture(d, s, x, &[1, 2]);
        recapture(d, s, graph).unwrap();
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        assert_eq!(d.end_capture(s), Err(918), "a node is missing");
        recapture(d, s, graph).unwrap();
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        assert_eq!(d.memset(x, 0, 64, s), Err(918), "a node of another kind");
        assert_eq!(d.end_capture(s), Err(901));
        let shorter = capture(d, s, x, &[1]);
        recapture(d, s, shorter).unwrap();
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        assert_eq!(d.launch("fill", s, &[x, N, 1, 0]), Err(918), "one node more");
    });
    outcome.ran();
}

#[test]
fn memory_nodes_keep_their_address() {
    let outcome = child("memory_nodes_keep_their_address", &VERSION, |d| {
        let s = d.stream().unwrap();
        let work = |bytes| {
            let block = d.alloc_async(bytes, s)?;
            d.launch("fill", s, &[block, N, 1, 0])?;
            d.free_async(block, s).map(|()| block)
        };
        d.begin_capture(s, GLOBAL).unwrap();
        let block = work(1 << 20).unwrap();
        let graph = d.end_capture(s).unwrap();
        recapture(d, s, graph).unwrap();
        assert_eq!(work(1 << 20), Ok(block));
        assert_eq!(d.end_capture(s), Ok(graph));
        d.launch_graph(d.instantiate(graph).unwrap(), s).unwrap();
        d.synchronize().unwrap();
        recapture(d, s, graph).unwrap();
        assert_eq!(work(2 << 20), Err(918), "of another size");
    });
    outcome.ran();
}

#[test]
fn user_objects_are_released_first() {
    static FIRED: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn fired(_: *mut c_void) {
        FIRED.store(1, Ordering::SeqCst);
    }
    let outcome = child("user_objects_are_released_first", &VERSION, |d| {
        let (s, x) = (d.stream().unwrap(), d.alloc(N as usize).unwrap());
        let graph = capture(d, s, x, &[1]);
        let mut object = 0;
        // SAFETY: a local for the result, and a destructor that ignores its data.
        unsafe {
            let null = std::ptr::null_mut();
            check((d.functions.cuUserObjectCreate)(&mut object, null, fired, 1, 1)).unwrap();
            check((d.functions.cuGraphRetainUserObject)(graph, object, 1, 1)).unwrap();
        }
        assert_eq!(FIRED.load(Ordering::SeqCst), 0);
        recapture(d, s, graph).unwrap();
        while FIRED.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        assert_eq!(d.end_capture(s), Ok(graph));
    });
    outcome.clean();
}

#[test]
fn a_command_list_needs_a_context_beside_graphics() {
    let outcome = child("a_command_list_needs_a_context_beside_graphics", &VERSION, |d| {
        type Create = unsafe extern "C" fn(*mut u64, *const u64, u32, i32) -> i32;
        let begin = |stream, list: &[u64; 2]| {
            let params: *const [u64; 2] = list;
            let params = (&raw const params).cast();
            // SAFETY: `CUstreamCigCaptureParams`, which points to `CUstreamCigParam`.
            check(unsafe { (d.functions.cuStreamBeginCaptureToCig)(stream, params) })
        };
        // SAFETY: the function takes a number.
        let end = |stream| check(unsafe { (d.functions.cuStreamEndCaptureToCig)(stream) });
        assert_eq!(begin(d.stream().unwrap(), &[1, 1]), Err(201));
        let shared = [1, 1_u64];
        let params = [0, 0, &raw const shared as u64];
        let create = d.resolver.symbol("cuCtxCreate_v4").unwrap();
        let mut context = 0;
        // SAFETY: `CUctxCreateParams`, and a local for the result.
        let code = unsafe {
            std::mem::transmute::<*mut c_void, Create>(create)(&mut context, params.as_ptr(), 0, 0)
        };
        assert_eq!(code, 0);
        let (s, x) = (d.stream().unwrap(), d.alloc(N as usize).unwrap());
        assert_eq!(begin(s, &[1, 0]), Err(1));
        assert_eq!(begin(s, &[7, 1]), Err(1));
        begin(s, &[2, 1]).unwrap();
        assert_eq!(begin(s, &[2, 1]), Err(401));
        assert_eq!(d.end_capture(s), Err(1));
        d.launch("fill", s, &[x, N, 1, 0]).unwrap();
        d.memset(x, 0, 64, s).unwrap();
        assert_eq!(d.alloc_async(64, s), Err(900));
        assert_eq!(end(d.stream().unwrap()), Err(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                d.set_context(context).unwrap();
                assert_eq!(end(s), Err(908));
            });
        });
        assert_eq!(end(s), Ok(()));
        assert_eq!(d.capture_status(s), Ok(0));
        d.synchronize().unwrap();
        assert_eq!(d.read_words(x, 1).unwrap(), [0]);
    });
    outcome.clean();
}
