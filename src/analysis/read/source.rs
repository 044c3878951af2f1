//! Reads the bytes of a file in order, and keeps the position for messages.

use std::io::{ErrorKind, Read};

use super::error::ReadError;

pub(super) struct Source<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Start of the unread part of the buffer.
    at: usize,
    end: usize,
    /// Position of the buffer in the file.
    position: u64,
}

const BUFFER_BYTES: usize = 1 << 18;

impl<R: Read> Source<R> {
    pub(super) fn new(reader: R) -> Source<R> {
        Source { reader, buffer: vec![0; BUFFER_BYTES], at: 0, end: 0, position: 0 }
    }

    pub(super) fn position(&self) -> u64 {
        self.position + self.at as u64
    }

    /// Returns the next bytes, up to `count`, without consuming them. Returns fewer only at the end
    /// of the file.
    pub(super) fn peek(&mut self, count: usize) -> Result<&[u8], ReadError> {
        while self.end - self.at < count && self.fill()? {}
        Ok(&self.buffer[self.at..self.end.min(self.at + count)])
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, ReadError> {
        if self.at == self.end && !self.fill()? {
            return Err(self.truncated());
        }
        self.at += 1;
        Ok(self.buffer[self.at - 1])
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Fills `into`.
    #[inline]
    pub(super) fn exact(&mut self, into: &mut [u8]) -> Result<(), ReadError> {
        if let Some(bytes) = self.buffer[self.at..self.end].get(..into.len()) {
            into.copy_from_slice(bytes);
            self.at += into.len();
            return Ok(());
        }
        into.iter_mut().try_for_each(|byte| self.byte().map(|read| *byte = read))
    }

    /// Appends `count` bytes. Memory grows as they arrive, not as they are announced.
    pub(super) fn bytes(&mut self, mut count: usize, into: &mut Vec<u8>) -> Result<(), ReadError> {
        while count > 0 {
            if self.at == self.end && !self.fill()? {
                return Err(self.truncated());
            }
            let some = count.min(self.end - self.at);
            into.extend_from_slice(&self.buffer[self.at..self.at + some]);
            self.at += some;
            count -= some;
        }
        Ok(())
    }

    /// Reads more into the buffer. Returns `false` at the end of the file.
    fn fill(&mut self) -> Result<bool, ReadError> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.position += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }

    fn truncated(&self) -> ReadError {
        ReadError::Truncated { at: self.position() }
    }
}
