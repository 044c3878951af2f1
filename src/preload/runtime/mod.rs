//! The process: contexts with their caches, what a free must wait for, and when to step aside.
//! Raw C arguments end in `hooks`; from here on everything is typed.
//!
//! Locks, outermost first; a thread takes them only in this order:
//!
//! | lock | held during driver calls | protects |
//! |---|---|---|
//! | `OpenCapture::work` | yes | what one capture has and may use again; its end waits for it |
//! | `OpenCapture::names` | no | what the nodes of a capture name |
//! | `Context::growth` | yes | a whole miss: two threads do not both empty the cache |
//! | `pool_life::ENDED` | yes | pools whose graph is gone |
//! | `Context::door` | yes | the end of a context against whoever comes to it on no call of the program that means it |
//! | `Context::idle` | yes | a turn of the keeper, which takes none of the first two |
//! | `Context::gate` | yes, the only one that others wait for | a barrier against the begin of a capture, and one barrier against another |
//! | `Tagged::order` | the record of one event | the order of stream-ordered frees |
//! | `Context::arenas` | yes | what is mapped where |
//! | `captures::SET` | "does it capture?" | the capturing streams |
//! | `Context::allocator` | no | the pure allocator |
//! | `foreign_bytes::FOREIGN` | no | what the driver serves the program itself, beside the limit |
//! | `Book::pages` | no | what the driver gave by address or handle |
//! | a shard of `lookaside` | no | a few blocks kept for the next allocation |
//! | `Context::recorder` | no | what happened; free wherever the allocator's lock is held |
//! | `Events::free`, `Context::last_barrier` | no | leaves |

pub mod bypass;
pub mod own_thread;
pub mod process;
pub mod reading;
pub mod skipping;
pub mod stats;
pub mod thread;
pub mod waits;

pub mod context_list;
pub mod contexts;
pub mod events;
pub mod extents;
pub mod lookaside;
pub mod lost;

pub mod alloc;
pub mod arenas;
pub mod barrier;
pub mod captures;
pub mod contents;
pub mod debts;
pub mod departures;
pub mod free;
pub mod idle;
pub mod keeper;
pub mod miss;
pub mod real_frees;
pub mod release;
pub mod room;
pub mod settle;

pub mod chunks;
pub mod foreign_bytes;
pub mod limits;

pub mod memory_hooks;

pub mod live;
pub mod orders;
pub mod recording;
pub mod report;
pub mod shortage;
pub mod silence;
pub mod snapshot;
pub mod snapshots;
pub mod stop;
pub mod writer;

pub mod exports;
pub mod imports;
pub mod ipc_handle;

pub mod agents;
pub mod captured_work;
pub mod early_start;
pub mod graph_memory;
pub mod kernels;
pub mod names;
pub mod open_captures;
pub mod participants;
pub mod peers;
pub mod pinned;
pub mod pool_life;
pub mod pool_numbers;
pub mod pools;
pub mod private_pools;
pub mod streams;
pub mod submissions;
pub mod tags;

use cachealloc_core::order::Ledger;
use cachealloc_core::rules::{Rule, rule_holds};

/// What was submitted, what the host may look at, and who shares the device with us.
pub static LEDGER: Ledger = Ledger::new();

/// Where a rule is broken, time for another thread to show it.
#[inline(always)]
pub fn widen(rule: Rule) {
    if !rule_holds(rule) {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

pub use crate::lock::lock;
