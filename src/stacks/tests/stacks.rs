//! Unusual stacks and wrong rules: no crash, no cycle, no read outside the stack.

mod common;

use core::ffi::{c_int, c_void};
use std::cell::Cell;

use cachealloc_stacks::{Place, capture, capture_places, fallbacks, function_range, object_range};
use common::{Bottom, FRAMES_MAX, LIES, Library, build, compare, compared, ours};

#[test]
fn room_and_hidden_frames() {
    // From this function's frame on; its own address differs from call to call.
    let all = ours().split_off(1);
    assert!(all.len() > 4);
    let mut out = [7; 4];
    let captured = capture(&mut out[..3], 0..0);
    assert!(captured.truncated);
    assert_eq!(captured.count, 3);
    assert_eq!(out[1..3], all[1..3]);
    assert_eq!(out[3], 7, "nothing is written beyond the room");
    assert!(capture(&mut [], 0..0).truncated);

    let mut out = [0; FRAMES_MAX];
    let exact = all.len();
    let captured = capture(&mut out[..exact], 0..0);
    assert_eq!((captured.count, captured.truncated), (exact, false));

    // All frames of this program are hidden: the rest begins in libc.
    let program = object_range(all[0]);
    let captured = capture(&mut out, program.clone());
    let first = all.iter().position(|address| !program.contains(address)).unwrap();
    assert_eq!(out[..captured.count], all[first..]);
    // Only leading frames are hidden.
    let captured = capture(&mut out, all[1]..all[1] + 1);
    assert_eq!(captured.count, all.len());
}

/// The frame that contains a variable is that of its function. An address without code has no
/// function.
#[test]
fn a_variable_is_in_the_frame_of_its_function() {
    fn holder(variable: u64) -> u64 {
        let mut places = [Place::default(); FRAMES_MAX];
        let count = capture_places(&mut places, 0..0).count;
        let addresses: Vec<u64> = places[..count].iter().map(|place| place.address).collect();
        // The innermost calls differ.
        assert!(addresses.ends_with(&ours()[2..]));
        let mut pairs = places[..count].windows(2);
        let holds =
            |pair: &&[Place]| (pair[0].stack_pointer..pair[1].stack_pointer).contains(&variable);
        pairs.find(holds).expect("a frame")[0].address
    }
    #[inline(never)]
    fn function() -> u64 {
        let variable = core::hint::black_box(7u64);
        core::hint::black_box(holder(&raw const variable as u64))
    }
    let found = function_range(function() - 1);
    assert_eq!(found.start, function as *const () as u64);
    assert!(found.contains(&(found.end - 1)));
    assert_eq!(function_range(found.start), found);
    assert_ne!(function_range(found.end), found);
    assert!(function_range(&raw const found as u64).is_empty());
}

#[test]
fn coroutines_have_stacks_of_their_own() {
    thread_local! {
        static BODY: Cell<Option<fn()>> = const { Cell::new(None) };
    }
    const BYTES: usize = 256 << 10;
    extern "C" fn coroutine() {
        BODY.get().unwrap()();
    }
    fn on_coroutine(body: fn()) {
        BODY.set(Some(body));
        let room = unmapped_page() as *mut c_void;
        // The megabyte above it stays unreadable.
        // SAFETY: a mapping of this test.
        assert_eq!(unsafe { libc::mprotect(room, BYTES, libc::PROT_READ | libc::PROT_WRITE) }, 0);
        // SAFETY: plain data, filled by `getcontext`.
        let mut main: libc::ucontext_t = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut context: libc::ucontext_t = unsafe { core::mem::zeroed() };
        // SAFETY: fills the context.
        unsafe { libc::getcontext(&mut context) };
        context.uc_stack.ss_sp = room;
        context.uc_stack.ss_size = BYTES;
        context.uc_link = &mut main;
        // SAFETY: a stack of that size, alive until the coroutine returned.
        unsafe { libc::makecontext(&mut context, coroutine, 0) };
        // SAFETY: both contexts are complete.
        unsafe { libc::swapcontext(&mut main, &context) };
    }
    fn on_coroutines(body: fn()) {
        on_coroutine(body);
        compare();
        on_coroutine(body);
        // Also as the first capture of a thread, whose own stack is not known then.
        std::thread::spawn(move || on_coroutine(body)).join().unwrap();
    }
    let before = fallbacks();
    compared(|| on_coroutines(compare_here));
    assert_eq!(fallbacks(), before, "libgcc was not needed");
    // A rule that leads past the end of the coroutine's stack.
    on_coroutines(|| {
        let Some(path) = build(LIES, "lies_of_coroutine", &[]) else { return };
        let library = Library::open(&path);
        let found = lie_here(&library, "lie_far", 0);
        let range = object_range(library.address("lie_far"));
        assert!(range.contains(found.last().unwrap()), "{found:x?}");
    });
}

#[test]
fn threads_with_small_stacks_of_the_programs_own() {
    extern "C" fn start(argument: *mut c_void) -> *mut c_void {
        compare();
        argument
    }
    const BYTES: usize = 64 << 10;
    let room = Box::leak(vec![0u128; BYTES / 16].into_boxed_slice());
    // SAFETY: plain data.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    // SAFETY: initialises.
    unsafe { libc::pthread_attr_init(&mut attributes) };
    // SAFETY: memory that is never freed.
    unsafe { libc::pthread_attr_setstack(&mut attributes, room.as_mut_ptr().cast(), BYTES) };
    let mut thread = 0;
    compared(|| {
        // SAFETY: valid attributes and function.
        let failed =
            unsafe { libc::pthread_create(&mut thread, &attributes, start, core::ptr::null_mut()) };
        assert_eq!(failed, 0);
        // SAFETY: a thread that is joined only here.
        unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
    });
}

fn compare_here() {
    compare();
}

/// Calls a function of `lies.s`; returns the frames found above it.
fn lie_here(library: &Library, name: &str, argument: u64) -> Vec<u64> {
    thread_local! {
        static FOUND: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
    }
    extern "C-unwind" fn bottom() {
        FOUND.set(ours());
    }
    // SAFETY: the fixture's functions have this type.
    let function: extern "C-unwind" fn(Bottom, u64) =
        unsafe { core::mem::transmute(library.address(name)) };
    function(bottom, argument);
    FOUND.take()
}

/// Like [`lie_here`], on a thread with a small stack.
fn lie(library: &Library, name: &str, argument: impl Fn() -> u64 + Send) -> Vec<u64> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let run = move || lie_here(library, name, argument());
        thread.spawn_scoped(scope, run).unwrap().join().unwrap()
    })
}

/// Functions whose frames depend on a register, which holds the second argument.
#[cfg(target_arch = "x86_64")]
const FRAMES_BY_REGISTER: [&str; 2] = ["lie_frame_pointer", "lie_realigned"];
#[cfg(target_arch = "aarch64")]
const FRAMES_BY_REGISTER: [&str; 1] = ["lie_frame_pointer"];

#[test]
fn wrong_unwind_rules_end_the_stack() {
    let Some(path) = build(LIES, "lies", &[]) else { return };
    let library = Library::open(&path);
    let page = unmapped_page();
    let on_stack = || &raw const page as u64;
    // The callback's frames and the function with the wrong rule, whose caller cannot be found.
    let check = |name: &str, argument: &(dyn Fn() -> u64 + Sync)| {
        let found = lie(&library, name, argument);
        let range = object_range(library.address(name));
        let liar = found.iter().position(|address| range.contains(address)).expect(name);
        // One round of the cycle is above that function's own frame, no more.
        assert!(found.len() <= liar + 2, "{name}: {found:x?}");
    };
    check("lie_far", &|| 0);
    for name in FRAMES_BY_REGISTER {
        check(name, &|| 0);
        check(name, &|| 1 << 60);
        check(name, &|| u64::MAX - 15);
        check(name, &move || page);
        // In the main thread's stack, readable, but not this thread's.
        check(name, &|| on_stack());
        // In this thread's stack but misaligned; and below it.
        check(name, &|| (&raw const library as u64) | 3);
        check(name, &|| own_stack_address() + 0x101);
        check(name, &|| own_stack_address() - 0x4000);
    }
    check("lie_circle", &|| 0);
}

#[inline(never)]
fn own_stack_address() -> u64 {
    let word = 0u64;
    std::hint::black_box(&raw const word) as u64
}

/// Returns the address of a page that faults when read.
fn unmapped_page() -> u64 {
    // SAFETY: a fresh mapping without access.
    let page = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            2 << 20,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    page as u64 + 4096
}

#[test]
fn c_functions_as_callers() {
    extern "C" fn order(_: *const c_void, _: *const c_void) -> c_int {
        compare();
        0
    }
    let mut values = [3u64, 1, 2];
    // SAFETY: three values of eight bytes.
    compared(|| unsafe { libc::qsort(values.as_mut_ptr().cast(), 3, 8, Some(order)) });
}
