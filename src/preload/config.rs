//! The settings of this process, read once from `CACHEALLOC_CONF`. The table of options, the parser
//! and its messages are in the crate `cachealloc_options`.

pub(crate) mod environment;

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

use cachealloc_history::name;
use cachealloc_options::{Config, Fill, LogLevel, Record};

use crate::gate;
use crate::gate::Condition;
use crate::log;
use crate::log::Level;

static CONFIG: OnceLock<Config> = OnceLock::new();

/// Whether anything is recorded.
#[inline(always)]
pub(crate) fn records() -> bool {
    gate::has(Condition::Records)
}

/// Whether the library fills or guards memory: `fill` or `red_zone`.
#[inline(always)]
pub(crate) fn writes_blocks() -> bool {
    gate::has(Condition::WritesBlocks)
}

/// Bytes to keep past the end of each block.
#[inline(always)]
pub(crate) fn zone_bytes() -> u64 {
    if writes_blocks() { get().red_zone_bytes } else { 0 }
}

/// Maximum bytes of pinned memory to keep.
pub(crate) fn host_cache_bytes() -> u64 {
    let config = get();
    if config.keeps_pinned() { config.host_cache_bytes } else { 0 }
}

/// Whether memory is limited on any device.
#[inline(always)]
pub(crate) fn limits() -> bool {
    gate::has(Condition::Limits)
}

/// Enables limit checks, after a call has set a limit.
pub(crate) fn note_limit() {
    if get().only_looks() {
        return;
    }
    gate::set(Condition::Limits);
}

/// Whether the driver serves every request (`cache:false`, `fraction_of_gpu_memory_to_use:0`).
#[inline(always)]
pub(crate) fn caches_nothing() -> bool {
    gate::has(Condition::CachesNothing)
}

/// Whether the library only observes: it serves nothing and changes nothing (`cache:false`).
#[inline(always)]
pub(crate) fn only_looks() -> bool {
    gate::has(Condition::OnlyLooks)
}

/// Switches recording on or off at the program's request. Must be called after the settings were
/// read.
pub(crate) fn set_records(on: bool) {
    gate::change(Condition::Records, on);
}

/// Returns the settings. The first call reads the environment and reports its errors.
#[inline]
pub(crate) fn get() -> &'static Config {
    match CONFIG.get() {
        Some(config) => config,
        None => CONFIG.get_or_init(read),
    }
}

/// Whether the options `only` and `except` include this program. Most settings name neither.
/// Checking that allocates nothing, because this may run inside an allocator that initializes
/// itself.
pub(crate) fn includes_this_program() -> bool {
    if !environment::get(VARIABLE).is_some_and(|text| has(text, c"only") || has(text, c"except")) {
        return true;
    }
    let program = cachealloc_foreign::own_program();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    get().programs.include(&name)
}

/// Prints the table of options when the process starts, if the settings contain the word `help`,
/// whether or not the process starts CUDA. Only the first process of a tree prints it; otherwise a
/// shell script would print it for each line.
pub(crate) fn help_at_start() {
    // Every process that inherits the variables runs this. The others read only one variable.
    let Some(text) = environment::get(VARIABLE).filter(|text| has(text, c"help")) else { return };
    if is_off() {
        return;
    }
    let is_first = || !environment_of_parent().is_some_and(|parent| has_help_under_us(&parent));
    if cachealloc_options::parse(&text.to_string_lossy()).0.help && is_first() {
        log::raw(cachealloc_options::help().as_bytes());
    }
}

/// Whether `CACHEALLOC=0` turns the library off.
pub(crate) fn is_off() -> bool {
    environment::get(c"CACHEALLOC") == Some(c"0")
}

fn has(text: &CStr, key: &CStr) -> bool {
    let key = key.to_bytes();
    text.to_bytes().windows(key.len()).any(|part| part == key)
}

const VARIABLE: &CStr = c"CACHEALLOC_CONF";

/// Returns the environment with which the parent was started, or `None` if it cannot be read.
fn environment_of_parent() -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{}/environ", std::os::unix::process::parent_id())).ok()
}

/// Whether a process with this environment has printed the table itself.
fn has_help_under_us(environment: &[u8]) -> bool {
    let variable = |name: &str| {
        let mut values = environment.split(|byte| *byte == 0);
        let value = values.find_map(|value| value.strip_prefix(name.as_bytes())).unwrap_or(b"");
        String::from_utf8_lossy(value).into_owned()
    };
    let settings = variable("CACHEALLOC_CONF=");
    variable("LD_PRELOAD=").contains("libcachealloc") && cachealloc_options::parse(&settings).0.help
}

/// Text of the settings, for the library's threads. They must not read the environment themselves,
/// because the program may change it at any time (`setenv`) without synchronization.
static TEXT: OnceLock<String> = OnceLock::new();
static RANK: AtomicU64 = AtomicU64::new(NO_RANK);
const NO_RANK: u64 = u64::MAX;

/// Returns the text of the settings.
pub(crate) fn text() -> &'static str {
    TEXT.get().map_or("", String::as_str)
}

/// Returns the rank of this process in its job.
pub(crate) fn rank() -> Option<u32> {
    u32::try_from(RANK.load(Ordering::Relaxed)).ok()
}

/// Reads variables that some launchers set late. Must be called in a thread of the program, inside
/// a CUDA call that reads the environment itself.
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
        (records, Condition::Records),
        (writes_blocks, Condition::WritesBlocks),
        (config.limit.is_set() && !only_looks, Condition::Limits),
        (only_looks, Condition::OnlyLooks),
        (!config.caches(), Condition::CachesNothing),
        (!config.skip_barriers, Condition::MakesBarriers),
        (config.policy.rounds_to_divisions(), Condition::RoundsUp),
    ];
    asked.into_iter().filter(|(on, _)| *on).for_each(|(_, condition)| _ = gate::set(condition));
    // Printed at any log level: the user must learn that a setting is not in force.
    problems.iter().for_each(|problem| log::line(format_args!("{problem}")));
    #[cfg(feature = "break-rules")]
    break_rules();
    config
}

/// Breaks the rules named in `CACHEALLOC_BREAK` in this process, in test builds only.
#[cfg(feature = "break-rules")]
fn break_rules() {
    let names = environment::text(c"CACHEALLOC_BREAK").unwrap_or_default();
    if !names.is_empty() {
        gate::set(Condition::RuleBroken);
    }
    if let Err(unknown) = cachealloc_core::rules::set_broken(&names) {
        log::line(format_args!("CACHEALLOC_BREAK: unknown rule {unknown:?}"));
    }
}
