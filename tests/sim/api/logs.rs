//! The driver's log of errors.

use super::pointers::{In, Out, put_text, text};
use crate::abi::{Code, Handle, LogCallback, Outcome};
use crate::logs;

driver! {
    fn cuLogsRegisterCallback: (
        callback: Option<LogCallback>, data: u64, handle: Out<Handle>
    ) |call| {
        let callback = callback.ok_or(Code::INVALID_VALUE)?;
        handle.put_if_asked(logs::register(callback, data));
        Ok(())
    }

    fn cuLogsUnregisterCallback: (handle: Handle) |call| {
        if logs::unregister(handle) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuLogsCurrent: (iterator: Out<u32>, flags: u32) |call| {
        iterator.put(logs::end())
    }

    fn cuLogsDumpToFile: (iterator: Out<u32>, path: In<u8>, flags: u32) |call| {
        let lines = dump(iterator)?;
        std::fs::write(text(path)?, lines).map_err(|_| Code::INVALID_VALUE)
    }

    fn cuLogsDumpToMemory: (
        iterator: Out<u32>, buffer: Out<u8>, bytes: Out<usize>, flags: u32
    ) |call| {
        let lines = dump(iterator)?;
        put_text(buffer, bytes.get()?, &lines)?;
        bytes.put(lines.len())
    }
}

/// Returns the lines after an iterator, or all if there is none, and moves it to the end.
fn dump(iterator: Out<u32>) -> Outcome<String> {
    let begin = if iterator.is_null() { 0 } else { iterator.get()? };
    iterator.put_if_asked(logs::end());
    Ok(logs::since(begin))
}
