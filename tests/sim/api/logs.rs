//! The driver's log of errors.

use super::pointers::Out;
use crate::abi::{Code, Handle, LogCallback};
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
}
