//! `libcachealloc.so`: preloaded into a CUDA program that was not recompiled.
//!
//! The route of a call (`src/README.md` has all of it): `interpose` gives our exports to the program,
//! `functions` lists them, `hooks` turn C arguments into typed calls, the rooms (`cache`, `ordering`,
//! `graphs` and so on) serve them with the pure allocator and the ordering rules of `cachealloc-core`,
//! `record` remembers what happened, `driver` is the only place that calls the real `libcuda.so.1`. Raw
//! C arguments end in `hooks`.
//!
//! Locks, outermost first; a thread takes them only in this order:
//!
//! | lock | held during driver calls | protects |
//! |---|---|---|
//! | `OpenCapture::work` | yes | what one capture has and may reuse; its end waits for it |
//! | `OpenCapture::names` | no | what the nodes of a capture name |
//! | `Context::growth_lock` | yes | a whole miss: two threads do not both empty the cache |
//! | `graphs::pool_life::ENDED` | yes | pools whose graph is gone |
//! | `Context::lifetime_lock` | yes | the end of a context against uses of it that no call of the program protects |
//! | `Context::idle` | yes | a pass of the scavenger, which takes none of the first two |
//! | `Context::barrier_lock` | yes, the only one that other threads wait for | a barrier against the begin of a capture, and one barrier against another |
//! | `StreamFrees::order` | the record of one event | the order of stream-ordered frees |
//! | `Context::arenas` | yes | what is mapped where |
//! | `ordering::captures::SET` | "does it capture?" | the capturing streams |
//! | `Context::allocator` | no | the pure allocator |
//! | `driver_memory::table::TABLE` | no | what the driver serves the program itself, and its history |
//! | `handle_table::HandleTable::pages` | no | what the driver gave by address or handle |
//! | a shard of `thread_cache` | no | a few blocks kept for the next allocation |
//! | `pagemap::residence::LISTED_PAGES` | no | pages of slots in which no block begins |
//! | `Context::recorder` | no | what happened; free wherever the allocator's lock is held |
//! | `Events::free`, `Context::last_barrier` | no | leaves |

#![warn(unreachable_pub)]

mod apart;
mod c_library;
mod clock;
mod config;
mod environment;
mod handle_table;
mod heap;
mod identity;
mod intrusive_stack;
mod lock;
mod log;
mod recent;
mod seccomp;
mod state;
mod stderr;
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
