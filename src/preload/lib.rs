//! `libcachealloc.so`: preloaded into a CUDA program that was not recompiled.
//!
//! The route of a call (`src/README.md` has the details): `interpose` substitutes the library's
//! exports for the driver's functions, `functions` lists them, and `hooks` turn C arguments into
//! typed calls. The modules `cache`, `ordering`, `graphs` and others serve these calls with the
//! pure allocator and the ordering rules of `cachealloc-core`. `record` keeps the history, and only
//! `driver` calls the real `libcuda.so.1`. Raw C arguments do not go past `hooks`.
//!
//! Locks, outermost first; a thread takes them only in this order:
//!
//! | lock | held during driver calls | protects |
//! |---|---|---|
//! | `OpenCapture::work` | yes | allocations of one capture and what it may reuse; its end waits for it |
//! | `OpenCapture::names` | no | what the nodes of a capture reference |
//! | `Context::growth_lock` | yes | a whole miss: two threads do not both empty the cache |
//! | `graphs::pool_life::ENDED` | yes | pools whose graph is gone |
//! | `Context::lifetime_lock` | yes | the context against its end, for uses that no call of the program protects |
//! | `Context::idle` | yes | a pass of the scavenger, which takes none of the first two |
//! | `Context::barrier_lock` | yes, the only one that other threads wait for | barriers against each other, starts of captures, and requests for segments |
//! | `StreamFrees::order` | the record of one event | the order of stream-ordered frees |
//! | `Context::arenas` | yes | mappings |
//! | `ordering::captures::SET` | the query whether a stream captures | the capturing streams |
//! | `Context::allocator` | no | the pure allocator |
//! | `driver_memory::table::TABLE` | no | memory that the driver serves the program directly, and its history |
//! | `handle_table::HandleTable::pages` | no | what the driver provided, by address or handle |
//! | a shard of `thread_cache` | no | a few blocks kept for the next allocation |
//! | `pagemap::residence::LISTED_PAGES` | no | pages of slots in which no block begins |
//! | `Context::recorder` | no | what happened; free wherever the allocator's lock is held |
//! | `Events::free`, `Context::last_barrier` | no | leaves |

#![warn(unreachable_pub)]

mod apart;
mod c_library;
mod clock;
mod config;
mod gate;
mod handle_table;
mod heap;
mod identity;
mod lists;
mod lock;
mod log;
mod seccomp;
mod state;
mod test_delay;
mod thread_state;

mod driver;
mod functions;
mod record;

mod exports;

mod hooks;

mod assembly;
mod c_api;
mod cache;
mod contexts;
mod driver_memory;
mod graphs;
mod interpose;
mod ipc;
mod memory_hooks;
mod ordering;
mod out_of_memory;
mod pagemap;
mod peer_reclaim;
mod process;
mod serving;
mod snapshots;
mod statistics;
mod trim;
