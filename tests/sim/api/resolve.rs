//! Look-up of functions, and the calls that are allowed before initialization.

use std::sync::LazyLock;

use super::pointers::{In, Out, text};
use crate::abi::{CODE_NAMES, Code, Outcome};
use crate::call::Call;
use crate::functions::{FUNCTIONS, Function};
use crate::model::world::config;

driver! {
    fn cuInit: (flags: u32) |call| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        call.world().initialized = true;
        Ok(())
    }

    fn cuDriverGetVersion: (version: Out<i32>) |call| {
        version.put(config().driver_version)
    }

    fn cuGetProcAddress: (name: In<u8>, address: Out<u64>, version: i32, flags: u64) |call| {
        look_up(call, name, address, version, flags).map(drop)
    }

    fn cuGetProcAddress_v2: (
        name: In<u8>, address: Out<u64>, version: i32, flags: u64, status: Out<u32>
    ) |call| {
        let found = look_up(call, name, address, version, flags)?;
        status.put_if_asked(found as u32);
        Ok(())
    }

    // Returns a table with one function for one ID, and a table without any for every other.
    fn cuGetExportTable: (table: Out<u64>, id: In<[u8; 16]>) |call| {
        static EMPTY: [usize; 1] = [size_of::<usize>()];
        static WAIT: LazyLock<[usize; 2]> = LazyLock::new(|| {
            let wait = FUNCTIONS.iter().find(|function| function.symbol == "cuStreamWaitEvent");
            [size_of::<[usize; 2]>(), wait.expect("the driver has it").address.0 as usize]
        });
        let entries = if id.get()? == WAIT_TABLE { &WAIT[..] } else { &EMPTY[..] };
        table.put(entries.as_ptr() as u64)
    }

    fn cuGetErrorName: (code: i32, name: Out<u64>) |call| {
        name_of(code, name)
    }

    fn cuGetErrorString: (code: i32, name: Out<u64>) |call| {
        name_of(code, name)
    }
}

/// A table through which a program calls `cuStreamWaitEvent` past every hook.
const WAIT_TABLE: [u8; 16] = [10; 16];

/// Results of `cuGetProcAddress_v2` besides the pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Yes = 0,
    No = 1,
    TooOld = 2,
}

const PER_THREAD_FLAG: u64 = 2;
const FLAGS_MAX: u64 = 2;

/// Looks a function up. Measured: only base names resolve; a version above the driver's is
/// rejected; a missing name gives null and, in the old form, an error code.
fn look_up(
    call: &mut Call,
    name: In<u8>,
    address: Out<u64>,
    version: i32,
    flags: u64,
) -> Outcome<Found> {
    let name = text(name)?;
    if address.is_null() || version > config().driver_version || flags > FLAGS_MAX {
        return Err(Code::INVALID_VALUE);
    }
    let (function, found) = choose(&name, version, flags & PER_THREAD_FLAG != 0);
    address.put(function.map_or(0, |function| function.address.0 as u64))?;
    if function.is_none() && call.name == "cuGetProcAddress" {
        return Err(Code::NOT_FOUND);
    }
    Ok(found)
}

fn choose(name: &str, version: i32, per_thread: bool) -> (Option<&'static Function>, Found) {
    let newest = config().driver_version;
    let of_name = |function: &&Function| {
        let is_there = function.api_version <= newest && function.symbol != config().lacks;
        !name.is_empty() && function.base == name && is_there
    };
    let old_enough = |function: &&Function| function.api_version <= version;
    let known: Vec<&Function> = FUNCTIONS.iter().filter(of_name).collect();
    if known.is_empty() {
        return (None, Found::No);
    }
    let last = |twin: bool| {
        let fitting = known.iter().copied().filter(|function| function.per_thread == twin);
        fitting.filter(old_enough).max_by_key(|function| function.api_version)
    };
    let plain = last(false);
    let has_twin = known.iter().any(|function| function.per_thread);
    let chosen = match (per_thread && has_twin, last(true)) {
        (false, _) => plain,
        (true, Some(twin)) => Some(twin),
        // Per-thread forms since 7.0: older versions get nothing rather than the plain function.
        (true, None) => None,
    };
    (chosen, if chosen.is_some() { Found::Yes } else { Found::TooOld })
}

fn name_of(code: i32, name: Out<u64>) -> Outcome {
    let found = CODE_NAMES.iter().find(|(known, _)| *known == code);
    name.put(found.map_or(0, |(_, text)| text.as_ptr() as u64))?;
    found.map(drop).ok_or(Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, version: i32, per_thread: bool) -> Option<&'static str> {
        choose(name, version, per_thread).0.map(|function| function.symbol)
    }

    #[test]
    fn the_newest_symbol_that_is_old_enough_is_found() {
        assert_eq!(symbol("cuMemAlloc", 12_000, false), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuMemAlloc", 2_000, false), Some("cuMemAlloc"));
        assert_eq!(symbol("cuMemAlloc_v2", 12_000, false), None);
        assert_eq!(symbol("cuMemAllocAsync", 12_000, true), Some("cuMemAllocAsync_ptsz"));
        assert_eq!(symbol("cuMemAllocAsync_ptsz", 12_000, true), None);
        assert_eq!(symbol("cuMemAlloc", 12_000, true), Some("cuMemAlloc_v2"));
        assert_eq!(symbol("cuLaunchKernel", 6_050, true), None);
        assert_eq!(symbol("cuGetProcAddress", 11_080, false), Some("cuGetProcAddress"));
        assert_eq!(symbol("cuGetProcAddress", 12_000, false), Some("cuGetProcAddress_v2"));
        assert_eq!(choose("cuCtxGetId", 11_000, false).1, Found::TooOld);
        assert_eq!(choose("cuNothing", 11_000, false).1, Found::No);
    }

    #[test]
    fn no_two_exports_share_an_address() {
        let mut seen = std::collections::HashMap::new();
        for function in FUNCTIONS {
            let other = seen.insert(function.address.0 as usize, function.symbol);
            assert_eq!(other, None, "{} shares an address", function.symbol);
        }
        assert_eq!(FUNCTIONS.len(), 726);
    }
}
