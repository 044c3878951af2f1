//! The sender's part of an order, as `page` says. The caller has the file open and its head mapped; it says how to
//! change a word for the kernel's futex calls, and what is known of the process behind the file.

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
    /// Sleeps while a word has this value, until woken, or for so long.
    fn sleep(&self, offset: usize, value: u32, longest: Duration);
}

/// The process that is to carry out an order.
pub trait Receiver {
    fn has_ended(&self) -> bool;
    /// It cannot answer before it goes on.
    fn is_stopped(&self) -> bool;
    /// How much longer the sender waits.
    fn timeout(&self) -> Duration;
}

/// What became of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    Done,
    /// The process says no, with this `errno`.
    Refused(i32),
    /// Another sender holds the lock.
    Others,
    /// It did not begin, and was taken back.
    Silent,
    /// It has begun, and does not come to an end.
    Unfinished,
    /// The process has ended.
    Ended,
    /// The file is none, or that of a library of another version.
    OtherLayout,
}

/// So often it is looked whether the process is still there.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// And whether another sender has let go of the lock.
const LOCK_AGAIN: Duration = Duration::from_millis(1);

/// Reads a head. None: it is none, or of another layout.
pub fn head(file: &File) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD_BYTES];
    // What is missing of a shorter head is zero.
    let _ = file.read_at(&mut bytes, 0)?;
    Ok(Head::from_bytes(&bytes))
}

/// Has a process carry an order out. Where it does not even begin, the order is taken back. With `Done` comes the head
/// as it was then.
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
    // Not by closing it alone: a child forked meanwhile has it as well.
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
