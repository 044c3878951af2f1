//! The settings of this process, read once from `CACHEALLOC_CONF`. The table of options, the parser and
//! its messages are in the crate of the options.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

use cachealloc_history::name;
use cachealloc_options::{Config, Fill, LogLevel, Record};

use crate::environment;
use crate::log;
use crate::log::Level;

static CONFIG: OnceLock<Config> = OnceLock::new();
/// What every call needs, in one byte; 0 until the settings are read, before CUDA starts.
static ASKED_OFTEN: AtomicU8 = AtomicU8::new(0);
const RECORDS: u8 = 1;
const WRITES_BLOCKS: u8 = 2;
const LIMITS: u8 = 4;
const CACHES_NOTHING: u8 = 8;
const MAKES_BARRIERS: u8 = 16;
const ROUNDS_UP: u8 = 32;
const ONLY_LOOKS: u8 = 64;

/// The lowest bit: a launch needs no more than each does. Above it, how often that may have changed.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
const ARE_PLAIN: u64 = 1;

/// Whether a launch needs no more than each does: hooks do their work, nothing is recorded, and no stream captures.
#[inline(always)]
pub(crate) fn launches_are_plain() -> bool {
    LAUNCHES.load(Ordering::Relaxed) & ARE_PLAIN != 0
}

/// Launches are plain from here on, if they are and nothing changes that meanwhile.
#[cold]
pub(crate) fn look_whether_plain(are_plain: impl FnOnce() -> bool) {
    let before = LAUNCHES.load(Ordering::Acquire);
    if are_plain() {
        let after = before | ARE_PLAIN;
        let _ = LAUNCHES.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A launch must look again. Call after the change.
pub(crate) fn launches_change() {
    let changed = |before: u64| Some((before | ARE_PLAIN).wrapping_add(1));
    let _ = LAUNCHES.fetch_update(Ordering::AcqRel, Ordering::Relaxed, changed);
}

/// Whether anything is recorded.
#[inline(always)]
pub(crate) fn records() -> bool {
    ASKED_OFTEN.load(Ordering::Relaxed) & RECORDS != 0
}

/// Whether we fill memory or guard it: `fill` or `red_zone`.
#[inline(always)]
pub(crate) fn writes_blocks() -> bool {
    ASKED_OFTEN.load(Ordering::Relaxed) & WRITES_BLOCKS != 0
}

/// Whether a request is only for memory, of which the cache may have some: nothing is recorded or written, and its size is
/// rounded to units alone.
#[inline(always)]
pub(crate) fn allocates_simply() -> bool {
    const MORE: u8 = RECORDS | WRITES_BLOCKS | ROUNDS_UP | CACHES_NOTHING;
    ASKED_OFTEN.load(Ordering::Relaxed) & MORE == 0
}

/// Whether a free of such blocks may find that it needs no barrier (`skip_barriers`), and does nothing but that.
#[inline(always)]
pub(crate) fn frees_simply() -> bool {
    ASKED_OFTEN.load(Ordering::Relaxed) & (RECORDS | WRITES_BLOCKS | MAKES_BARRIERS) == 0
}

/// Bytes to keep free after each block.
#[inline(always)]
pub(crate) fn zone_bytes() -> u64 {
    if writes_blocks() { get().red_zone_bytes } else { 0 }
}

/// How much pinned memory may be kept.
pub(crate) fn host_cache_bytes() -> u64 {
    let config = get();
    if config.keeps_pinned() { config.host_cache_bytes } else { 0 }
}

/// Whether memory is limited, on any device.
#[inline(always)]
pub(crate) fn limits() -> bool {
    ASKED_OFTEN.load(Ordering::Relaxed) & LIMITS != 0
}

/// A call has set a limit: from now on limits are checked.
pub(crate) fn note_limit() {
    if get().only_looks() {
        return;
    }
    ASKED_OFTEN.fetch_or(LIMITS, Ordering::Relaxed);
}

/// Whether the driver serves every request (`cache:false`, `fraction_of_gpu_memory_to_use:0`).
#[inline(always)]
pub(crate) fn caches_nothing() -> bool {
    ASKED_OFTEN.load(Ordering::Relaxed) & CACHES_NOTHING != 0
}

/// Whether the library serves nothing and changes nothing, and only looks (`cache:false`).
#[inline(always)]
pub(crate) fn only_looks() -> bool {
    ASKED_OFTEN.load(Ordering::Relaxed) & ONLY_LOOKS != 0
}

/// The program switches recording on or off. Call after the settings were read.
pub(crate) fn set_records(on: bool) {
    if on {
        ASKED_OFTEN.fetch_or(RECORDS, Ordering::Relaxed);
        launches_change();
    } else {
        ASKED_OFTEN.fetch_and(!RECORDS, Ordering::Relaxed);
    }
}

/// The settings. The first call reads the environment and reports its errors.
#[inline]
pub(crate) fn get() -> &'static Config {
    match CONFIG.get() {
        Some(config) => config,
        None => CONFIG.get_or_init(read),
    }
}

/// Whether the options `only` and `except` include this program. Most settings name neither; checking
/// that allocates nothing, because this may run inside an allocator that initializes itself.
pub(crate) fn includes_this_program() -> bool {
    if !environment::get(VARIABLE).is_some_and(|text| has(text, c"only") || has(text, c"except")) {
        return true;
    }
    let program = cachealloc_foreign::own_program();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    get().programs.include(&name)
}

/// Where the word `help` stands in the settings, the table is printed when the process starts, whether or not
/// it starts CUDA; by the first process of a tree only, or a shell script would print it for each line.
pub(crate) fn help_at_start() {
    // Every process that inherits the variables comes through here: the others read one variable, no more.
    let Some(text) = environment::get(VARIABLE).filter(|text| has(text, c"help")) else { return };
    if is_off() {
        return;
    }
    let is_first = || !environment_of_parent().is_some_and(|parent| has_help_under_us(&parent));
    if cachealloc_options::parse(&text.to_string_lossy()).0.help && is_first() {
        log::raw(cachealloc_options::help().as_bytes());
    }
}

/// Whether the one switch that turns everything off is set.
pub(crate) fn is_off() -> bool {
    environment::get(c"CACHEALLOC") == Some(c"0")
}

fn has(text: &CStr, key: &CStr) -> bool {
    // SAFETY: two C strings.
    !unsafe { libc::strstr(text.as_ptr(), key.as_ptr()) }.is_null()
}

const VARIABLE: &CStr = c"CACHEALLOC_CONF";

/// As the parent was started; None: that cannot be seen from here.
fn environment_of_parent() -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{}/environ", std::os::unix::process::parent_id())).ok()
}

/// Whether a process of this environment has printed the table itself.
fn has_help_under_us(environment: &[u8]) -> bool {
    let variable = |name: &str| {
        let mut values = environment.split(|byte| *byte == 0);
        let value = values.find_map(|value| value.strip_prefix(name.as_bytes())).unwrap_or(b"");
        String::from_utf8_lossy(value).into_owned()
    };
    let settings = variable("CACHEALLOC_CONF=");
    variable("LD_PRELOAD=").contains("libcachealloc") && cachealloc_options::parse(&settings).0.help
}

/// The text of the settings, for threads of ours: they must not read the environment themselves, since the program
/// may change it at any time (`setenv`) without synchronization.
static TEXT: OnceLock<String> = OnceLock::new();
static RANK: AtomicU64 = AtomicU64::new(NO_RANK);
const NO_RANK: u64 = u64::MAX;

/// The text of the settings.
pub(crate) fn text() -> &'static str {
    TEXT.get().map_or("", String::as_str)
}

/// The rank of this process in its job.
pub(crate) fn rank() -> Option<u32> {
    u32::try_from(RANK.load(Ordering::Relaxed)).ok()
}

/// Reads what some launchers set late. Call in a thread of the program, inside a CUDA call that reads
/// the environment itself.
pub(crate) fn note_environment() {
    let late = |variable: &str| std::env::var(variable).ok();
    let early = |variable: &str| environment::text(&CString::new(variable).ok()?);
    let rank = name::rank(|variable| late(variable).or_else(|| early(variable)));
    RANK.store(rank.map_or(NO_RANK, u64::from), Ordering::Relaxed);
}

#[cold]
fn read() -> Config {
    let text = environment::text(VARIABLE).unwrap_or_default();
    let (config, problems) = cachealloc_options::parse(&text);
    let _ = TEXT.set(text);
    log::set_level(match config.log {
        LogLevel::Quiet => Level::Quiet,
        LogLevel::Warn => Level::Warn,
        LogLevel::Info => Level::Info,
    });
    let records = config.history.record != Record::Off;
    let only_looks = config.only_looks();
    let writes_blocks = !only_looks && (config.fill != Fill::None || config.red_zone_bytes != 0);
    let asked = [
        (records, RECORDS),
        (writes_blocks, WRITES_BLOCKS),
        (config.limit.is_set() && !only_looks, LIMITS),
        (only_looks, ONLY_LOOKS),
        (!config.caches(), CACHES_NOTHING),
        (!config.skip_barriers, MAKES_BARRIERS),
        (config.policy.rounds_to_divisions(), ROUNDS_UP),
    ];
    let asked = asked.into_iter().filter(|(on, _)| *on).fold(0, |asked, (_, bit)| asked | bit);
    ASKED_OFTEN.fetch_or(asked, Ordering::Relaxed);
    launches_change();
    // Printed at any level: a setting that is not in force must not go unnoticed.
    problems.iter().for_each(|problem| log::line(format_args!("{problem}")));
    #[cfg(feature = "break-rules")]
    break_rules();
    config
}

/// Test builds only: the rules named in `CACHEALLOC_BREAK` do not hold in this process.
#[cfg(feature = "break-rules")]
fn break_rules() {
    let names = environment::text(c"CACHEALLOC_BREAK").unwrap_or_default();
    if let Err(unknown) = cachealloc_core::rules::set_broken(&names) {
        log::line(format_args!("CACHEALLOC_BREAK: there is no rule {unknown:?}"));
    }
}
