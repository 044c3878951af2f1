//! Stacks through signal handlers: same as libgcc's on the thread's stack, at every instruction.

mod common;

use core::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{LIES, Library, build, compare, compared};

/// Lets one test run at a time. While a process forks, no walk visits the loader's list, and a
/// capture on an alternate stack ends early.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle(signal: c_int, handler: extern "C" fn(c_int), flags: c_int) {
    // SAFETY: all-zero is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: a valid action.
    assert_eq!(unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) }, 0);
}

extern "C" fn compare_in_handler(_: c_int) {
    compare();
}

/// Gives the calling thread an alternate stack. The registers alone may take 11 kB of it, and
/// libgcc's comparison some more.
fn alternate_stack() {
    const BYTES: usize = 64 << 10;
    let room = Box::leak(vec![0u8; BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: room.as_mut_ptr().cast(), ss_flags: 0, ss_size: BYTES };
    // SAFETY: memory that is never freed.
    assert_eq!(unsafe { libc::sigaltstack(&stack, core::ptr::null_mut()) }, 0);
}

#[test]
fn a_handler_on_the_threads_stack_and_on_an_alternate_one() {
    let _alone = alone();
    extern "C-unwind" fn raise_both() {
        // SAFETY: both have handlers.
        unsafe { libc::raise(libc::SIGUSR1) };
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGUSR2) };
    }
    alternate_stack();
    handle(libc::SIGUSR1, compare_in_handler, 0);
    handle(libc::SIGUSR2, compare_in_handler, libc::SA_ONSTACK);
    compared(|| raise_both());
    let Some(path) = build("deep.cpp", "signalled", &["-O2"]) else { return };
    let library = Library::open(&path);
    for shape in ["plain", "realigned", "exceptions", "sorted"] {
        compared(|| library.run(shape, 10, raise_both));
    }
}

#[test]
fn a_handler_interrupted_by_a_handler() {
    let _alone = alone();
    extern "C" fn outer(_: c_int) {
        // SAFETY: has a handler.
        unsafe { libc::raise(libc::SIGVTALRM) };
    }
    alternate_stack();
    for (outer_flags, inner_flags) in
        [(0, 0), (libc::SA_ONSTACK, 0), (0, libc::SA_ONSTACK), (libc::SA_ONSTACK, libc::SA_ONSTACK)]
    {
        handle(libc::SIGPROF, outer, outer_flags);
        handle(libc::SIGVTALRM, compare_in_handler, inner_flags);
        // SAFETY: has a handler.
        compared(|| unsafe {
            libc::raise(libc::SIGPROF);
        });
    }
}

/// On aarch64 a program cannot single-step itself.
#[cfg(target_arch = "x86_64")]
#[test]
fn at_every_instruction() {
    let _alone = alone();
    use std::sync::atomic::Ordering;

    use cachealloc_stacks::fallbacks;
    use common::COMPARED;

    let Some(path) = build("steps.cpp", "steps", &["-O2", "-Wl,-z,lazy"]) else { return };
    let steps = Library::open_bound(&path, libc::RTLD_LAZY);
    // SAFETY: the fixture's function of this type.
    let step_through: extern "C-unwind" fn(u64, c_int) =
        unsafe { core::mem::transmute(steps.address("step_through")) };
    for (index, flags) in
        [&["-O0", "-Wl,-z,lazy"][..], &["-O2", "-fcf-protection=none", "-Wl,-z,lazy"]]
            .into_iter()
            .enumerate()
    {
        let path = build("deep.cpp", &format!("stepped{index}"), flags).unwrap();
        let library = Library::open_bound(&path, libc::RTLD_LAZY);
        for flags in [0, libc::SA_ONSTACK] {
            alternate_stack();
            handle(libc::SIGTRAP, compare_in_handler, flags);
            for shape in ["plain", "dynamic_size", "realigned", "virtuals", "sorted", "tails"] {
                let before = COMPARED.load(Ordering::Relaxed);
                step_through(library.address(shape), 3);
                assert!(COMPARED.load(Ordering::Relaxed) > before + 30, "{shape}");
            }
        }
    }
    eprintln!("{} stacks, {} by libgcc", COMPARED.load(Ordering::Relaxed), fallbacks());
}

/// An interrupted function may not have saved its return address.
#[cfg(target_arch = "aarch64")]
#[test]
fn in_a_leaf() {
    let _alone = alone();
    extern "C" fn compare_and_go_on(_: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        compare();
        // SAFETY: what the kernel gave the handler; the trap is one instruction.
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc += 4 };
    }
    let Some(path) = build(LIES, "leaf", &[]) else { return };
    let library = Library::open(&path);
    // SAFETY: the fixture's function has this type.
    let trap: extern "C-unwind" fn() =
        unsafe { core::mem::transmute(library.address("trap_in_leaf")) };
    for flags in [0, libc::SA_ONSTACK] {
        alternate_stack();
        let handler = compare_and_go_on as *const () as usize;
        // SAFETY: a handler takes its arguments by position.
        let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
        handle(libc::SIGILL, handler, flags | libc::SA_SIGINFO);
        compared(|| trap());
    }
}

/// Takes a stack on the alternate one and ends the process.
extern "C" fn report(_: c_int) {
    let mut out = [0; 64];
    let captured = cachealloc_stacks::capture(&mut out, 0..0);
    // SAFETY: ends this child.
    unsafe { libc::_exit(if captured.count >= 2 { 7 } else { 8 }) };
}

/// Runs `body`, which faults, in a child whose handler must run to its end.
fn fault_in_child(signal: c_int, body: impl FnOnce()) {
    // SAFETY: the child does only the following.
    let child = unsafe { libc::fork() };
    if child == 0 {
        alternate_stack();
        handle(signal, report, libc::SA_ONSTACK);
        body();
        // SAFETY: ends this child.
        unsafe { libc::_exit(9) };
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status:x}");
}

/// The interrupted stack pointer is in the guard page, where no read may happen.
#[test]
fn after_a_stack_overflow() {
    let _alone = alone();
    extern "C" fn overflow(depth: usize) -> usize {
        let room = std::hint::black_box([depth; 100]);
        let below = if depth == usize::MAX { depth } else { overflow(depth + 1) };
        std::hint::black_box(room);
        below
    }
    fault_in_child(libc::SIGSEGV, || {
        overflow(0);
    });
}

/// libgcc would follow that register anywhere.
#[test]
fn after_a_trap_where_only_libgcc_has_a_rule() {
    let _alone = alone();
    let Some(path) = build(LIES, "lies_of_traps", &[]) else { return };
    let library = Library::open(&path);
    // SAFETY: the fixture's function has this type.
    let trap: extern "C-unwind" fn(u64, u64) =
        unsafe { core::mem::transmute(library.address("lie_register")) };
    fault_in_child(libc::SIGILL, || trap(0, 0xdead_0000));
}
