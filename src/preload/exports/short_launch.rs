//! The functions of the short path of a launch, on x86-64.

pub(super) use cachealloc_core::order::{Lane, Ledger};

pub(super) use crate::hooks::launch::short::{self, Begun};
use crate::ordering::legacy_stream;
pub(super) use crate::state::barriers::LEDGER;

/// The arguments of a launch after the first six, which are in registers. Passed by value, they are
/// on the stack, as they would be one by one, and so stay in memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Rest<const N: usize>(pub [usize; N]);

impl<const N: usize> Rest<N> {
    /// More words would be in registers, like the first ones.
    pub(super) const ARE_ON_THE_STACK: () = assert!(size_of::<Rest<N>>() > 2 * size_of::<u64>());
}

/// Returns the address of a function. The compiler does not see which one it is, so a call of it
/// leaves all arguments in their places, and is a jump.
macro_rules! address_of {
    ($function:ident) => {{
        let address: *const c_void;
        // SAFETY: it only computes an address.
        unsafe {
            asm!("lea {}, [rip + {}]", out(reg) address, sym $function,
                options(pure, nomem, nostack, preserves_flags));
        }
        address
    }};
}

/// Returns the place of a name in a list.
pub(super) const fn place_in(list: &[&str], name: &str) -> usize {
    let mut place = 0;
    while !is_same(list[place].as_bytes(), name.as_bytes()) {
        place += 1;
    }
    place
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (mut index, mut same) = (0, one.len() == other.len());
    while same && index < one.len() {
        same = one[index] == other[index];
        index += 1;
    }
    same
}

/// Defines the functions of the short path of a launch: `body`, and those to which it jumps. No
/// register has to be saved for their arguments.
///
/// `body` is what `short::begin`, the call of the driver's function and `short::end` are for the
/// thread that owns its lane, instruction by instruction. A compiler copies the arguments on the
/// stack in twice as many, and saves registers.
macro_rules! short_launch {
    ($stream:ident, $per_thread:literal, [$($r:ident),*], [$($p:ident),*]) => {
        const OTHERS: usize = [$(stringify!($p)),*].len();
        type Others = Rest<OTHERS>;
        type Real = unsafe extern "C" fn($(short_launch!(@word $r),)* Others) -> CuCode;

        /// # Safety
        ///
        /// Must be called with the arguments of the driver function of this name.
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn body($($r: usize,)* others: Others) -> CuCode {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "cmp word ptr [rip + {gate} + {word}], {on}",
                "jne {every}",
                "mov rax, qword ptr fs:[0]",
                "cmp rax, qword ptr [rip + {gate} + {owner}]",
                "jne {in_any_lane}",
                "inc qword ptr [rip + {ledger} + {begins}]",
                // After the count (`submissions::counted`).
                "cmp byte ptr [rip + {gate} + {ignores}], 0",
                "je {begun}",
                "mov rax, qword ptr [rsp + {stream}]",
                // What `before_submission::named` does.
                ".if {per_thread}",
                "test rax, rax",
                "jne 7f",
                "mov eax, {thread_stream}",
                "7:",
                ".endif",
                "cmp rax, qword ptr [rip + {ledger} + {deferral}]",
                "jne 4f",
                "2:",
                "mov rax, qword ptr [rip + {table} + {real}]",
                "test rax, rax",
                "je {begun}",
                ".if {pad}",
                "sub rsp, {pad}",
                ".cfi_adjust_cfa_offset {pad}",
                ".endif",
                // For the case that the call fails.
                short_launch!(@push "r9"),
                short_launch!(@push "r8"),
                short_launch!(@push "rcx"),
                short_launch!(@push "rdx"),
                short_launch!(@push "rsi"),
                short_launch!(@push "rdi"),
                ".rept {others}",
                short_launch!(@push "qword ptr [rsp + {last}]"),
                ".endr",
                "call rax",
                "test eax, eax",
                "jne 5f",
                "inc qword ptr [rip + {ledger} + {ends}]",
                "cmp qword ptr [rsp + {pushed} + {stream}], {legacy}",
                // What `note_stream` asks.
                ".if {per_thread}",
                "jne 3f",
                ".else",
                "ja 3f",
                ".endif",
                "test byte ptr [rip + {more}], 1",
                "je 6f",
                "3:",
                "add rsp, {pushed}",
                ".cfi_remember_state",
                ".cfi_adjust_cfa_offset -{pushed}",
                "ret",
                ".cfi_restore_state",
                "5:",
                "mov edi, eax",
                "lea rsi, [rsp + 8 * {others}]",
                "lea rdx, [rsp + {pushed} + 8]",
                "call {failed}",
                "jmp 3b",
                "6:",
                "call {note_legacy_work}",
                "xor eax, eax",
                "jmp 3b",
                ".cfi_adjust_cfa_offset -{pushed}",
                "4:",
                "cmp qword ptr [rip + {ledger} + {deferral}], {multiple}",
                "je 2b",
                "jmp {begun}",
                ".cfi_endproc",
                gate = sym crate::gate::GATE,
                word = const crate::gate::places::WORD,
                on = const crate::gate::ON,
                owner = const crate::gate::places::OWNER,
                ignores = const crate::gate::places::IGNORES,
                ledger = sym LEDGER,
                begins = const Ledger::OF_OWN_BEGUN,
                ends = const Ledger::OF_OWN_ENDED,
                deferral = const Ledger::OF_DEFERRAL,
                multiple = const Ledger::MULTIPLE,
                table = sym table::REAL,
                real = const ID * size_of::<usize>(),
                more = sym legacy_stream::MORE,
                legacy = const STREAM_LEGACY,
                per_thread = const $per_thread as usize,
                thread_stream = const STREAM_PER_THREAD,
                // Above the return address.
                stream = const 8 + 8 * place_in(&[$(stringify!($p)),*], stringify!($stream)),
                others = const OTHERS,
                // The stack pointer at the call is a multiple of 16.
                pad = const PAD,
                pushed = const 8 * (REGISTERS + OTHERS) + PAD,
                // Each push moves the next argument to the place of the last.
                last = const 8 * (REGISTERS + OTHERS) + PAD,
                every = sym every,
                in_any_lane = sym in_any_lane,
                begun = sym begun,
                failed = sym failed,
                note_legacy_work = sym note_legacy_work,
            )
        }

        const REGISTERS: usize = [$(stringify!($r)),*].len();
        const PAD: usize = (REGISTERS + OTHERS + 1) % 2 * 8;

        /// Does what `body` does, for any thread.
        ///
        /// # Safety
        ///
        /// As for `body`.
        unsafe extern "C" fn in_any_lane($($r: usize,)* others: Others) -> CuCode {
            const { Others::ARE_ON_THE_STACK };
            let next = match short::begin(|| stream(&others)) {
                Begun::Not => address_of!(every),
                Begun::Plainly => address_of!(in_shared_lane),
                Begun::Unusually => address_of!(begun),
            };
            // SAFETY: each is a function with these arguments, in the same places, and they are the
            // caller's.
            unsafe { core::mem::transmute::<*const c_void, Real>(next)($($r,)* others) }
        }

        #[inline(always)]
        fn stream(others: &Others) -> u64 {
            #[allow(unused_variables)]
            let Rest([$($p),*]) = *others;
            before_submission::named($stream, $per_thread)
        }

        /// Makes a launch that was counted as begun in the shared lane, and that may go to its
        /// stream.
        ///
        /// # Safety
        ///
        /// As for `body`.
        #[inline(never)]
        unsafe extern "C" fn in_shared_lane($($r: usize,)* others: Others) -> CuCode {
            // SAFETY: the list gives this function the argument list of the driver's header, whose
            // last arguments are on the stack.
            let Some(real) = (unsafe { table::found::<Real>(ID) }) else {
                // SAFETY: the arguments are the caller's.
                return unsafe { begun($($r,)* others) };
            };
            // Those that the call may change are in memory, for the case that it fails. Otherwise
            // they would be in registers that have to be saved.
            let stored = [$($r),*];
            // SAFETY: it has no instruction.
            unsafe { asm!("/* {} */", in(reg) &stored, options(nostack, preserves_flags)) };
            // SAFETY: as above. What the arguments point to is the caller's promise.
            let returned = unsafe { real($($r,)* others) };
            match result(returned) {
                Ok(()) => short::end(stream(&others), Lane::Shared),
                Err(error) => failed_in(Lane::Shared, error, &stored, others),
            }
        }

        /// Ends a launch of `body` that has failed.
        #[cold]
        extern "C" fn failed(
            returned: CuCode,
            registers: &[usize; REGISTERS],
            others: &Others,
        ) -> CuCode {
            match result(returned) {
                Ok(()) => returned,
                Err(error) => failed_in(Lane::Own, error, registers, *others),
            }
        }

        #[inline(always)]
        fn failed_in(
            lane: Lane,
            error: CuError,
            registers: &[usize; REGISTERS],
            others: Others,
        ) -> CuCode {
            let [$($r),*] = *registers;
            let again = move || {
                before_submission::before_submit(stream(&others));
                // SAFETY: as in `in_shared_lane`.
                result(unsafe { table::real::<Real>(ID)($($r,)* others) })
            };
            let Rest([$($p),*]) = others;
            short::failed(&FUNCTIONS[ID], &[$($r,)* $($p),*], lane, error, again)
        }

        /// Continues after the launch was counted as begun.
        ///
        /// # Safety
        ///
        /// As for `body`.
        #[cold]
        #[inline(never)]
        unsafe extern "C" fn begun($($r: usize,)* others: Others) -> CuCode {
            let Rest([$($p),*]) = others;
            let real = move || {
                before_submission::before_submit(stream(&Rest([$($p),*])));
                // SAFETY: as in `in_shared_lane`.
                result(unsafe { table::real::<Real>(ID)($($r,)* Rest([$($p),*])) })
            };
            short::begun(&FUNCTIONS[ID], &[$($r,)* $($p),*], real)
        }
    };
    (@word $r:ident) => { usize };
    (@push $what:literal) => { concat!("push ", $what, "\n.cfi_adjust_cfa_offset 8") };
}

/// `legacy_stream::note_legacy_work`, for `short_launch!`.
#[cold]
pub(super) extern "C" fn note_legacy_work() {
    legacy_stream::note_legacy_work();
}
