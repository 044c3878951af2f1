//! A library for Python's ctypes. The tests use it to compare stacks through the interpreter.

use cachealloc_stacks::{capture, capture_by_libgcc};

/// Number of frames above the caller that both unwinders agree on; -1 if they do not agree.
#[unsafe(no_mangle)]
pub extern "C" fn agreed_frames() -> i32 {
    let (mut ours, mut oracle) = ([0; 1024], [0; 1024]);
    let mut count = 0;
    for _ in 0..2 {
        count = capture(&mut ours, 0..0).count;
    }
    let oracle_count = capture_by_libgcc(&mut oracle);
    // The first address lies in this function, where the calls differ.
    let agreed = count > 1 && oracle[..oracle_count].ends_with(&ours[1..count]);
    if agreed { count as i32 - 1 } else { -1 }
}

/// Number of captures that libgcc had to take.
#[unsafe(no_mangle)]
pub extern "C" fn fallbacks() -> u64 {
    cachealloc_stacks::fallbacks()
}
