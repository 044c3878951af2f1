//! Functions that std requires of the C library and glibc 2.17 does not export: `stat64` and
//! similar functions were inline before 2.33. They are hidden, so that no other library finds them
//! here.
//!
//! On both architectures the kernel's `struct stat` is the C library's, so each is one system call;
//! `syscall` sets `errno`.

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".text",
    ".globl stat64",
    ".hidden stat64",
    ".type stat64, @function",
    "stat64:",
    "endbr64",
    "mov rdx, rsi",
    "mov rsi, rdi",
    "mov edi, {stat}",
    "jmp {syscall}@PLT",
    ".size stat64, . - stat64",
    ".globl fstat64",
    ".hidden fstat64",
    ".type fstat64, @function",
    "fstat64:",
    "endbr64",
    "mov rdx, rsi",
    "movsxd rsi, edi",
    "mov edi, {fstat}",
    "jmp {syscall}@PLT",
    ".size fstat64, . - fstat64",
    ".globl lstat64",
    ".hidden lstat64",
    ".type lstat64, @function",
    "lstat64:",
    "endbr64",
    "mov rdx, rsi",
    "mov rsi, rdi",
    "mov edi, {lstat}",
    "jmp {syscall}@PLT",
    ".size lstat64, . - lstat64",
    stat = const libc::SYS_stat,
    lstat = const libc::SYS_lstat,
    fstat = const libc::SYS_fstat,
    syscall = sym libc::syscall,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".text",
    ".globl stat64",
    ".hidden stat64",
    ".type stat64, %function",
    "stat64:",
    "hint #34",
    "mov x3, x1",
    "mov x2, x0",
    "mov x1, #-100", // AT_FDCWD
    "mov x0, #{stat}",
    "mov x4, #0",
    "b {syscall}",
    ".size stat64, . - stat64",
    ".globl fstat64",
    ".hidden fstat64",
    ".type fstat64, %function",
    "fstat64:",
    "hint #34",
    "mov x2, x1",
    "sxtw x1, w0",
    "mov x0, #{fstat}",
    "b {syscall}",
    ".size fstat64, . - fstat64",
    ".globl lstat64",
    ".hidden lstat64",
    ".type lstat64, %function",
    "lstat64:",
    "hint #34",
    "mov x3, x1",
    "mov x2, x0",
    "mov x1, #-100", // AT_FDCWD
    "mov x0, #{stat}",
    "mov x4, #256", // AT_SYMLINK_NOFOLLOW
    "b {syscall}",
    ".size lstat64, . - lstat64",
    stat = const libc::SYS_newfstatat,
    fstat = const libc::SYS_fstat,
    syscall = sym libc::syscall,
);
