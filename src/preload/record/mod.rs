//! From what happens in the runtime to history: stacks first, before any lock; then entries, under
//! the lock that orders what they tell; names last, when a snapshot is written.
//!
//! Uses the core's types and the crates of history and stacks. Never calls the driver.

pub mod capture;
pub mod category;
pub mod foreign;
pub mod recorder;
pub mod symbols;

use std::sync::OnceLock;

use cachealloc_history::Stacks;

use crate::config;

/// What all stacks together may take: 48 MiB, some 200,000 different stacks of 30 frames.
const STACK_WORDS_MAX: u64 = 6 << 20;

static STACKS: OnceLock<Stacks> = OnceLock::new();

/// Whether anything is recorded. One load: asked on every hit.
#[inline(always)]
pub fn is_on() -> bool {
    config::records()
}

/// The stacks seen so far.
pub fn stacks() -> &'static Stacks {
    STACKS.get_or_init(|| Stacks::new(STACK_WORDS_MAX))
}

/// Some library may have been unloaded.
pub fn note_unload() {
    if STACKS.get().is_some() {
        cachealloc_stacks::note_unload();
    }
}
