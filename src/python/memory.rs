//! Reads addresses: directly, or so that a wrong address is an error instead of a fault.

use core::ffi::c_void;

/// Both ways to read share this trait, so that the walk that is checked is the walk that runs.
pub(crate) trait Memory {
    /// Copies the bytes at an address. Returns `None` if they are not all readable.
    fn read<const BYTES: usize>(&self, address: u64) -> Option<[u8; BYTES]>;

    #[inline(always)]
    fn word(&self, address: u64) -> Option<u64> {
        self.read(address).map(u64::from_le_bytes)
    }

    #[inline(always)]
    fn half(&self, address: u64) -> Option<u32> {
        self.read(address).map(u32::from_le_bytes)
    }

    #[inline(always)]
    fn byte(&self, address: u64) -> Option<u8> {
        self.read::<1>(address).map(|bytes| bytes[0])
    }

    /// Returns the address in a field that should hold an object, or `None` if it cannot be one.
    #[inline(always)]
    fn object(&self, address: u64) -> Option<u64> {
        self.word(address).filter(|object| is_plausible(*object))
    }
}

/// Lowest address of user space.
const ADDRESS_MIN: u64 = 1 << 12;
const ADDRESS_END: u64 = if cfg!(target_arch = "aarch64") { 1 << 48 } else { 1 << 47 };

/// Returns whether an object, a frame or a state of the interpreter can be at this address.
#[inline(always)]
pub(crate) fn is_plausible(address: u64) -> bool {
    address & 7 == 0 && (ADDRESS_MIN..ADDRESS_END).contains(&address)
}

/// Reads memory directly. Only for a layout that `self_check` has accepted.
pub(crate) struct Direct(());

impl Direct {
    /// # Safety
    ///
    /// The layout by which addresses are found has been checked in this process. The objects that
    /// they lead through must not change: they belong to frames of the calling thread, which is
    /// inside the hook.
    pub(crate) unsafe fn new() -> Direct {
        Direct(())
    }
}

impl Memory for Direct {
    #[inline(always)]
    fn read<const BYTES: usize>(&self, address: u64) -> Option<[u8; BYTES]> {
        // SAFETY:
        // 1. The creator of this `Direct` guarantees the addresses.
        // 2. Bytes have no alignment, and each pattern is valid.
        Some(unsafe { (address as *const [u8; BYTES]).read() })
    }
}

/// Reads through a pipe: the kernel reports an error if it must write from an unmapped address. A
/// read takes two system calls, so only the first walk uses it. (There is a system call that reads
/// a process's memory, but sandboxes reject it.)
pub(crate) struct Checked {
    read_end: i32,
    write_end: i32,
}

impl Checked {
    /// Returns `None` if the process cannot open more files.
    pub(crate) fn new() -> Option<Checked> {
        let mut ends = [0i32; 2];
        // SAFETY: `ends` has room for the two descriptors.
        let failed = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        (failed == 0).then_some(Checked { read_end: ends[0], write_end: ends[1] })
    }
}

impl Memory for Checked {
    fn read<const BYTES: usize>(&self, address: u64) -> Option<[u8; BYTES]> {
        let mut bytes = [0u8; BYTES];
        // SAFETY: the kernel reads from the address, and returns EFAULT if it is unmapped.
        let written = unsafe { libc::write(self.write_end, address as *const c_void, BYTES) };
        if written <= 0 {
            return None;
        }
        // SAFETY: `bytes` has room for BYTES, and the pipe holds no more than that.
        let read = unsafe { libc::read(self.read_end, bytes.as_mut_ptr().cast(), BYTES) };
        // Fewer bytes were written if the rest is on an unmapped page. The pipe is empty again.
        (written as usize == BYTES && read == written).then_some(bytes)
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        for end in [self.read_end, self.write_end] {
            // SAFETY: a descriptor that this object opened and did not share.
            unsafe { libc::close(end) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_address_is_an_answer() {
        let memory = Checked::new().expect("a pipe");
        let value = 0x0123_4567_89ab_cdef_u64;
        assert_eq!(memory.word(&raw const value as u64), Some(value));
        for wrong in [0, 8, 1 << 40, u64::MAX - 7] {
            assert_eq!(memory.word(wrong), None);
        }
        assert_eq!(memory.half(&raw const value as u64), Some(0x89ab_cdef));
    }

    #[test]
    fn the_end_of_a_mapping_is_an_answer() {
        let page_bytes = 4096;
        // SAFETY: an anonymous mapping of two pages, the second of which is unmapped again.
        let base = unsafe {
            let base = libc::mmap(
                core::ptr::null_mut(),
                2 * page_bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            libc::munmap(base.add(page_bytes), page_bytes);
            base as u64
        };
        let memory = Checked::new().expect("a pipe");
        assert_eq!(memory.word(base + 4092), None);
        assert_eq!(memory.word(base + 4088), Some(0), "the pipe is empty after a short write");
    }
}
