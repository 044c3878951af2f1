//! Bytes at simulated addresses, which are real addresses of this process.
//!
//! The functions take numbers, as a GPU does. Their callers have checked the numbers against the
//! table of live memory. A number that comes unchecked from the program (a pageable copy) faults
//! exactly where the real driver's copy would.

use std::sync::atomic::AtomicU64;

/// Repeats `element` over `bytes` bytes.
pub fn fill(start: u64, bytes: u64, element: &[u8]) {
    let uniform = element.iter().all(|byte| *byte == element[0]);
    if uniform {
        // SAFETY: the caller has checked that the range is live, and therefore mapped and writable.
        unsafe { std::ptr::write_bytes(start as *mut u8, element[0], bytes as usize) };
        return;
    }
    for offset in (0..bytes).step_by(element.len()) {
        write(start + offset, element);
    }
}

pub fn write(start: u64, bytes: &[u8]) {
    // SAFETY: the caller has checked that the destination is live, or the program has requested a
    // copy to this place; `bytes` is a local buffer and does not overlap program memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
}

pub fn copy(dst: u64, src: u64, bytes: u64) {
    // SAFETY: both ranges are live, or named by the program for this copy; overlap is allowed.
    unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, bytes as usize) };
}

pub fn read(start: u64, bytes: u64) -> Vec<u8> {
    // SAFETY: the program names this range as the source of a copy.
    unsafe { std::slice::from_raw_parts(start as *const u8, bytes as usize) }.to_vec()
}

/// Little-endian word of 4 or 8 bytes, at any alignment.
pub fn read_word(start: u64, bytes: u64) -> u64 {
    if bytes == 4 {
        // SAFETY: the caller has checked that the word is live.
        return u64::from(unsafe { (start as *const u32).read_volatile() });
    }
    // SAFETY: the caller has checked that the word is live; aligned words are read whole, as
    // another thread of the program may be writing a flag.
    unsafe { (start as *const u64).read_volatile() }
}

/// Returns the words of a live range, or `None` if it is not aligned to words.
pub fn words(start: u64, count: u64) -> Option<&'static [AtomicU64]> {
    if !start.is_multiple_of(8) {
        return None;
    }
    // SAFETY: the range is live and aligned; atomics allow that the program's own threads
    // look at it; the result is used before the lock that keeps it live is released.
    Some(unsafe { std::slice::from_raw_parts(start as *const AtomicU64, count as usize) })
}

/// Reserves address space that takes memory only where it is touched. Returns `None` if the system
/// refuses.
pub fn reserve(bytes: u64) -> Option<u64> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at as u64)
}

/// Clears the pages of the range and releases their memory.
pub fn clear_pages(start: u64, bytes: u64) {
    // SAFETY: the range lies in a mapping of the simulation, and nothing live is in it.
    unsafe { libc::madvise(start as *mut libc::c_void, bytes as usize, libc::MADV_DONTNEED) };
}

/// Physical memory that can be mapped at several places.
pub fn create_shared(bytes: u64) -> Option<i32> {
    // SAFETY: the name is a C string; the call creates a descriptor and touches nothing else.
    let file = unsafe { libc::memfd_create(c"simulated memory".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return None;
    }
    // SAFETY: the descriptor is ours.
    let sized = unsafe { libc::ftruncate(file, bytes as libc::off_t) };
    (sized == 0).then_some(file)
}

/// Sets the length of the file. New bytes read zero.
pub fn resize_shared(file: i32, bytes: u64) -> bool {
    // SAFETY: the descriptor is ours.
    unsafe { libc::ftruncate(file, bytes as libc::off_t) == 0 }
}

/// Clears this part of the file and releases its memory.
pub fn clear_shared(file: i32, offset: u64, bytes: u64) {
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is ours.
    unsafe { libc::fallocate(file, how, offset as libc::off_t, bytes as libc::off_t) };
}

/// Creates a file that contains a handle.
pub fn file_of(handle: u64) -> Option<i32> {
    let file = create_shared(8)?;
    let bytes = handle.to_le_bytes();
    // SAFETY: the bytes are ours, and so is the descriptor.
    let written = unsafe { libc::pwrite(file, bytes.as_ptr().cast(), bytes.len(), 0) };
    (written == 8).then_some(file)
}

/// Reads the handle from a file.
pub fn handle_in(file: i32) -> Option<u64> {
    let mut bytes = [0; 8];
    // SAFETY: the bytes are a local buffer; an invalid descriptor is an error.
    let read = unsafe { libc::pread(file, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    (read == 8).then(|| u64::from_le_bytes(bytes))
}

pub fn close_shared(file: i32) {
    // SAFETY: the descriptor is ours and forgotten by the caller.
    unsafe { libc::close(file) };
}

/// Maps a file that another process has created, like `place`.
pub fn place_file(start: u64, bytes: u64, path: &str) -> bool {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::options().read(true).write(true).open(path);
    file.is_ok_and(|file| place(start, bytes, Some(file.as_raw_fd()), 0))
}

/// Maps shared memory, or with `None` no memory, at a place inside a reservation of the simulation.
pub fn place(start: u64, bytes: u64, file: Option<i32>, offset: u64) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = match file {
        Some(_) => libc::MAP_SHARED,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    };
    let (at, length) = (start as *mut libc::c_void, bytes as usize);
    let (file, offset) = (file.unwrap_or(-1), offset as libc::off_t);
    // SAFETY: the range lies in a reservation of the simulation, where replacing pages is intended.
    let got = unsafe { libc::mmap(at, length, protection, kind | libc::MAP_FIXED, file, offset) };
    got == at
}
