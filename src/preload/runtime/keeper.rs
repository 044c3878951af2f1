//! The keeper: a thread of ours that looks every second whether memory lies idle (`idle.rs`).
//!
//! It begins when the process has reserved more than is worth a thread, and sleeps without waking
//! while there is less. Only a miss, which asks the driver anyway, looks whether it sleeps; frees and
//! hits know nothing of it. Time is counted in turns: a process that was stopped, or a machine that
//! slept, has not left its memory unused.
//!
//! At the end of the process it is out of the driver before that ends itself, or does not go in any more.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use cachealloc_core::options::{KeepFree, Strategy};
use cachealloc_core::rules::{Rule, rule_holds};

use crate::config;
use crate::log;
use crate::runtime::contexts;
use crate::runtime::own_thread::Body;
use crate::runtime::{bypass, idle, lock, own_thread, pool_life, process};

/// Seconds of the options are turns.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// A process that holds less has nothing that others miss.
const WORTH_BYTES: u64 = 64 << 20;
/// The process ends even if the driver does not let the keeper go.
const EXIT_WAIT_MAX: Duration = Duration::from_millis(500);

/// There is none yet.
const NONE: u8 = 0;
/// It looks, or there will never be one.
const SETTLED: u8 = 1;
/// It waits until there is more.
const ASLEEP: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NONE);
/// What it sleeps on.
static BELL: AtomicU32 = AtomicU32::new(0);
static IN_TURN: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicBool = AtomicBool::new(false);

/// A miss was served. Call without any lock of ours: a new thread wants the loader's, whose owner may
/// wait for ours in the constructor of a library that allocates.
#[inline]
pub fn cache_grew() {
    if STATE.load(Ordering::SeqCst) != SETTLED {
        begin_or_wake();
    }
}

/// Whether the process ends.
pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

#[cold]
fn begin_or_wake() {
    let wanted = is_wanted();
    if wanted && !is_worth_it() {
        return;
    }
    match STATE.compare_exchange(NONE, SETTLED, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) if wanted => begin(),
        Err(ASLEEP) => {
            BELL.fetch_add(1, Ordering::Release);
            own_thread::wake(&BELL);
        }
        _ => {}
    }
}

fn begin() {
    // After the driver's own, so before it at the end.
    // SAFETY: the function lives as long as the library, which is never unloaded (it is preloaded).
    unsafe { libc::atexit(stop) };
    if !own_thread::start(&Body { begin: || (), go_on: work }) {
        log::info(format_args!("no thread that gives idle memory back"));
    }
}

/// Chunks are reserved to be kept.
fn is_wanted() -> bool {
    let config = config::get();
    let goes_back =
        config.idle.release_seconds.is_some() || config.idle.keep_free != KeepFree::Bytes(0);
    goes_back && config.caches() && config.strategy == Strategy::AutoGrowth
}

fn is_worth_it() -> bool {
    let reserved = contexts::all()
        .map(|context| lock(&context.allocator).stats().reserved_bytes.all.current)
        .sum::<u64>();
    reserved >= WORTH_BYTES || (pace().is_some() && reserved > 0)
}

fn work() {
    loop {
        let heard = BELL.load(Ordering::Acquire);
        if is_stopped() || !bypass::is_on() {
            own_thread::wait(&BELL, heard, None);
        } else if is_worth_it() {
            own_thread::wait(&BELL, heard, Some(pace().unwrap_or(TURN_EVERY)));
            look();
        } else {
            STATE.store(ASLEEP, Ordering::SeqCst);
            // Whoever grew the cache before that has not seen it.
            if !is_worth_it() {
                own_thread::wait(&BELL, heard, None);
            }
            STATE.store(SETTLED, Ordering::SeqCst);
        }
    }
}

fn look() {
    IN_TURN.store(true, Ordering::SeqCst);
    let stopped = is_stopped() && rule_holds(Rule::KeeperStopsAtExit);
    if !stopped && bypass::is_on() {
        let turns = || {
            pool_life::reap();
            contexts::all().for_each(idle::turn);
        };
        if catch_unwind(turns).is_err() {
            bypass::begin(format_args!("giving idle memory back panicked"));
        }
    }
    IN_TURN.store(false, Ordering::SeqCst);
}

extern "C" fn stop() {
    if !process::is_ours() || bypass::is_off() || !rule_holds(Rule::KeeperStopsAtExit) {
        return;
    }
    STOPPED.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while IN_TURN.load(Ordering::SeqCst) && begun.elapsed() < EXIT_WAIT_MAX {
        own_thread::sleep(Duration::from_micros(100));
    }
}

/// Test builds only: turns follow each other so fast, and any memory is worth it.
#[cfg(feature = "break-rules")]
fn pace() -> Option<Duration> {
    static PACE: std::sync::OnceLock<Option<Duration>> = std::sync::OnceLock::new();
    *PACE.get_or_init(|| {
        let text = std::env::var("CACHEALLOC_TURN_MS").ok()?;
        Some(Duration::from_millis(text.parse().ok()?))
    })
}

#[cfg(not(feature = "break-rules"))]
fn pace() -> Option<Duration> {
    None
}
