//! The sender's part of a control command, as described in `page`. The caller has the file open and
//! its head mapped. It provides the kernel's futex calls on a word, and what is known about the
//! process that owns the file.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::control::{COMMAND_BYTES, ControlCommand};
use crate::page::{
    COMMAND_OFFSET, COMMANDS_OFFSET, DONE_OFFSET, DOORBELL_OFFSET, HEAD_BYTES, Head,
};

/// The words of a mapped head.
pub trait Words {
    /// Adds 1 to a word and wakes one sleeper on it.
    fn wake(&self, offset: usize) -> io::Result<()>;
    /// Sleeps while a word has this value, until woken, at most for `longest`.
    fn sleep(&self, offset: usize, value: u32, longest: Duration);
}

/// The process that is to execute a control command.
pub trait Receiver {
    fn has_ended(&self) -> bool;
    /// Whether the process is stopped and cannot answer before it continues.
    fn is_stopped(&self) -> bool;
    /// How much longer the sender waits.
    fn timeout(&self) -> Duration;
}

/// Outcome of a control command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    Done,
    /// The process refused it, with this `errno`.
    Refused(i32),
    /// Another sender holds the lock.
    Others,
    /// The process did not begin with it, and it was withdrawn.
    Silent,
    /// The process has begun, and does not finish.
    Unfinished,
    /// The process has ended.
    Ended,
    /// The file has no valid head, or that of a library of another version.
    OtherLayout,
}

/// Interval at which the sender checks whether the process still exists.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Interval at which the sender checks whether another sender has released the lock.
const LOCK_AGAIN: Duration = Duration::from_millis(1);

/// Reads a head. Returns `None` if it is not valid or of another layout.
pub fn head(file: &File) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD_BYTES];
    // The missing part of a shorter head is zero.
    let _ = file.read_at(&mut bytes, 0)?;
    Ok(Head::from_bytes(&bytes))
}

/// Has a process execute a control command. If it does not even begin, the command is withdrawn.
/// `Done` comes with the head at that moment.
pub fn send(
    file: &File,
    words: &impl Words,
    receiver: &impl Receiver,
    command: &ControlCommand,
) -> io::Result<(Sent, Option<Head>)> {
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if receiver.timeout().is_zero() => {
                return Ok((Sent::Others, None));
            }
            Err(TryLockError::WouldBlock) => {
                let done = head(file)?.map_or(0, |head| head.done);
                words.sleep(DONE_OFFSET, done, LOCK_AGAIN);
            }
        }
    }
    let sent = give(file, words, receiver, command);
    // Unlocked explicitly: closing the file is not enough, because a child forked meanwhile has it
    // open too.
    let _ = file.unlock();
    sent
}

fn give(
    file: &File,
    words: &impl Words,
    receiver: &impl Receiver,
    command: &ControlCommand,
) -> io::Result<(Sent, Option<Head>)> {
    let write = |command: [u8; COMMAND_BYTES]| file.write_all_at(&command, COMMAND_OFFSET as u64);
    let result = |head: Head| match head.result {
        0 => (Sent::Done, Some(head)),
        errno => (Sent::Refused(errno as i32), None),
    };
    write(command.to_bytes())?;
    words.wake(COMMANDS_OFFSET)?;
    let Some(Head { commands: number, .. }) = head(file)? else {
        return Ok((Sent::OtherLayout, None));
    };
    words.wake(DOORBELL_OFFSET)?;
    loop {
        let Some(head) = head(file)? else { return Ok((Sent::OtherLayout, None)) };
        if head.done == number {
            return Ok(result(head));
        }
        if receiver.has_ended() {
            return Ok((Sent::Ended, None));
        }
        let left = receiver.timeout();
        if left.is_zero() || receiver.is_stopped() {
            break;
        }
        words.sleep(DONE_OFFSET, head.done, left.min(LOOK_EVERY));
    }
    write([0; COMMAND_BYTES])?;
    let Some(head) = head(file)? else { return Ok((Sent::OtherLayout, None)) };
    Ok(match (head.begun == number, head.done == number) {
        (_, true) if head.result == 0 => result(head),
        (true, _) => (Sent::Unfinished, None),
        (false, _) => (Sent::Silent, None),
    })
}
