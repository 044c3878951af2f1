//! Records the history: stacks first, before any lock; then entries, under the lock that orders the
//! events; names last, when a snapshot is written.
//!
//! Uses the core's types and the crates of history, options, stacks and Python. Never calls the
//! driver.

pub(crate) mod caller;
pub(crate) mod capture;
pub(crate) mod driver_memory;
pub(crate) mod eval_loop;
pub(crate) mod holders;
pub(crate) mod persistent;
pub(crate) mod ranges;
pub(crate) mod recorder;
mod segments;
pub(crate) mod settings;
pub(crate) mod symbols;

use std::sync::OnceLock;

use cachealloc_history::{HOST_DEVICE, Stacks};

use crate::{config, log};

/// Replaces a device's number for host memory that devices access.
pub(crate) const HOST: i32 = HOST_DEVICE as i32;

/// Limit of the memory of all stacks together: 48 MiB, some 200,000 different stacks of 30 frames.
const STACK_WORDS_MAX: u64 = 6 << 20;

static STACKS: OnceLock<Stacks> = OnceLock::new();

/// Returns whether anything is recorded. One load, since every hit calls it.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    config::records()
}

/// Returns whether memory of this device is recorded now.
pub(crate) fn is_on_for(device: i32) -> bool {
    is_on() && settings::includes(&settings::get(), device)
}

/// Ends recording after its memory has run out; the program continues. Called inside an allocation:
/// takes no lock and allocates nothing.
pub(crate) fn stop_short() {
    if is_on() {
        config::set_records(false);
        let what = "cannot write a snapshot at exit: out of host memory";
        if persistent::keep() {
            let process = std::process::id();
            log::warn(format_args!(
                "recording has stopped, and {what}; write one with: cachealloc recover {process}"
            ));
        } else {
            log::warn(format_args!("recording has stopped, and {what}"));
        }
    }
}

/// Makes the list long enough for this index. Returns `false` if there is no memory, and recording
/// has stopped.
fn grow_to<T: Clone + Default>(list: &mut Vec<T>, index: usize) -> bool {
    if index < list.len() {
        return true;
    }
    let length = (index + 1).next_power_of_two();
    if list.try_reserve_exact(length - list.len()).is_err() {
        stop_short();
        return false;
    }
    list.resize(length, T::default());
    true
}

/// Returns the stacks seen so far.
pub(crate) fn stacks() -> &'static Stacks {
    STACKS.get_or_init(|| Stacks::persistent(STACK_WORDS_MAX, &persistent::Pieces))
}

/// Notes that a library may have been unloaded.
pub(crate) fn note_unload() {
    if STACKS.get().is_some() {
        cachealloc_stacks::note_unload();
    }
}
