//! Pointers that the program passes. All reads and writes through them are here.
//!
//! As with the real driver, a pointer that is neither null nor valid is the program's fault
//! and ends it.

use std::ffi::CStr;

use crate::abi::{Code, Outcome};

/// Destination of a result.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// Source of an argument or a list of arguments.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Clone for In<T> {
    fn clone(&self) -> In<T> {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> Out<T> {
    pub fn at(address: u64) -> Out<T> {
        Out(address as *mut T)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn address(self) -> u64 {
        self.0 as u64
    }

    pub fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        self.put_if_asked(value);
        Ok(())
    }

    pub fn put_if_asked(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and the program gave it for a result of this type.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    pub fn put_at(self, index: usize, value: T) {
        // SAFETY: the program gave room for more than `index` results of this type.
        unsafe { self.0.add(index).write_unaligned(value) };
    }

    pub fn get(self) -> Outcome<T>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

impl<T: Copy> In<T> {
    pub fn at(address: u64) -> In<T> {
        In(address as *const T)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn address(self) -> u64 {
        self.0 as u64
    }

    pub fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and the program gave it for an argument of this type.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// A list of `count`; null is an empty one.
    pub fn list(self, count: usize) -> Outcome<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, and the program guarantees that `count` items are here.
        Ok((0..count).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect())
    }
}

/// A C string given by the program.
pub fn text(at: In<u8>) -> Outcome<String> {
    if at.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and the program gave a string that ends in zero.
    let text = unsafe { CStr::from_ptr(at.0.cast()) };
    Ok(text.to_string_lossy().into_owned())
}

/// Writes a zero-terminated string, truncated to the buffer.
pub fn put_text(at: Out<u8>, room: usize, text: &str) -> Outcome {
    if at.is_null() || room == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let length = text.len().min(room - 1);
    for (index, byte) in text.as_bytes()[..length].iter().chain(&[0]).enumerate() {
        at.put_at(index, *byte);
    }
    Ok(())
}
