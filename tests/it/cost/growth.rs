//! Costs that must not grow with the work.

use std::fs;
use std::path::Path;
use std::process::Command;

use cachealloc_tests::{
    Run, compile, compile_library, driver_folder, library, release_library, scratch_file, skipped,
    tier,
};

use crate::record::snapshots::Place;

/// About 200 bytes in the core, and 32 for each 128 KiB of a segment with several blocks.
const HOST_BYTES_PER_BLOCK_MAX: u64 = 1_000;

/// Runs `growth.c` with these arguments and returns the number that it prints.
fn grown(arguments: &[u64]) -> u64 {
    let driver = compile_library("idle_driver.c", "driver_idle/libcuda.so.1", &[]);
    let output = Command::new(compile("growth.c"))
        .args(arguments.iter().map(u64::to_string))
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", driver.parent().expect("it has a folder"))
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    said.trim().parse().expect("a number")
}

/// Host memory follows the blocks that live, not the places where blocks ever began.
#[test]
fn host_memory_follows_live_blocks() {
    let few = grown(&[20_000]);
    let many = grown(&[tier::count(200_000, 2_000_000)]);
    println!("{few} KiB, then {many} KiB");
    // The thousand live blocks occupy no more pages than that, and some empty pages remain.
    assert!(many < few + 4_096, "{few} KiB grow to {many} KiB");
}

/// A live block takes little host memory, whatever its size. Before each region of a segment had a
/// slot, a block of 128 KiB or more took a page of 4 KiB.
#[test]
fn a_live_block_takes_little_host_memory() {
    for bytes in [0, 128 << 10, 1 << 20, 2 << 20, 16 << 20] {
        let taken = grown(&[4_000, bytes]);
        println!("a block of {bytes} bytes takes {taken}");
        assert!(taken <= HOST_BYTES_PER_BLOCK_MAX, "a block of {bytes} bytes takes {taken}");
    }
}

/// A long run of random requests costs no more memory than its beginning, and its statistics are
/// exact.
#[test]
fn random_requests_for_long() {
    let driver = compile_library("growing_driver.c", "driver_growing/libcuda.so.1", &[]);
    let output = Command::new(compile("random_requests.c"))
        .arg(tier::count(300_000, 100_000_000).to_string())
        .env("LD_PRELOAD", if tier::is_long() { release_library() } else { library() })
        .env("LD_LIBRARY_PATH", driver.parent().expect("it has a folder"))
        .env("CACHEALLOC_CONF", "snapshot:/dev/null/no")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{output:?}");
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [host_kb, reserved_mb, host_kb_last, reserved_mb_last] = numbers[..] else {
        panic!("{said}")
    };
    println!("{host_kb} KiB and {reserved_mb} MiB, then {host_kb_last} and {reserved_mb_last}");
    assert!(host_kb_last < host_kb + 4_096, "{host_kb} KiB grow to {host_kb_last}");
    assert!(
        5 * reserved_mb_last <= 6 * reserved_mb,
        "{reserved_mb} MiB grow to {reserved_mb_last}"
    );
}

/// Two pages and the statistics of an ended context stay.
#[test]
fn an_ended_context_leaves_little() {
    const BYTES_MAX: usize = 12 << 10;
    let ran = Run::c("ended_contexts.c").arg(BYTES_MAX.to_string()).output().ok();
    println!("{}", ran.stdout);
}

/// A miss asks the driver about one event of a stream, however many are pending.
#[test]
fn misses_beside_pending_frees() {
    let [few, many] = curve("pending", "", tier::count(MANY / 10, MANY));
    for asked in [few, many] {
        assert!(asked.queries <= asked.calls, "{asked:?}");
    }
}

/// With frees on many streams, a miss asks about one event of each.
#[test]
#[ignore = "long tier"]
fn misses_beside_pending_frees_of_many_streams() {
    const STREAMS: u64 = 64;
    let [few, many] = curve("streams", "", MANY);
    for asked in [few, many] {
        assert!(asked.queries <= STREAMS * asked.calls, "{asked:?}");
    }
}

/// A request that is served by small adjacent blocks of its own stream together.
#[test]
#[ignore = "long tier"]
fn requests_served_by_own_neighbours() {
    curve("neighbours", "", MANY);
}

/// A request that is ordered after the work of another stream, which has freed all memory in small
/// blocks: the blocks that it freed first are examined.
#[test]
fn requests_after_work_of_another_stream() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped("valgrind is not installed");
    }
    let [few, many] = [2_048, 16_384].map(|blocks| {
        let limit = format!(",gpu_memory_limit_mb:{}", (blocks * 4096) >> 20);
        counted("order", &limit, blocks).instructions
    });
    println!("order: {few}, then {many} instructions");
    assert!(2 * many <= 3 * few, "{few} instructions grow to {many}");
}

/// Frees on a stream share one event if nothing is submitted between them.
#[test]
fn frees_after_one_launch_share_an_event() {
    let [few, _] = curve("shared", "", FEW);
    assert_eq!((few.calls, few.records), (64, 1));
}

/// Misses beside many holes.
#[test]
#[ignore = "long tier"]
fn misses_in_a_fragmented_arena() {
    curve("fragmented", ",expandable_segments:true", MANY / 2);
}

/// Requests in contexts that are used in turn, beside many other contexts.
#[test]
fn requests_in_many_contexts() {
    between("contexts", "", [FEW / 20, FEW]);
}

/// A capture, from its begin to its end, beside many blocks unrelated to it.
#[test]
#[ignore = "long tier"]
fn captures_beside_many_blocks() {
    curve("capture", "", MANY);
}

/// While a snapshot is taken, other threads are stopped for the cut, which does not depend on the
/// length of the history.
#[test]
fn cut_beside_many_entries() {
    // The first 2048 entries are copied at the cut itself.
    let [few, many] = cuts("entries", "all", [4 * FEW, tier::count(20_000, MANY)]);
    println!("entries: {few}, then {many} instructions");
    assert!(2 * many <= 3 * few, "{few} instructions grow to {many}");
}

/// The cut lists segments, and no blocks.
#[test]
fn cut_beside_many_blocks() {
    let count = tier::count(20_000, MANY);
    let [few, many] = cuts("live", "state", [FEW, count]);
    println!("live: {few}, then {many} instructions");
    assert!(many <= few + count, "{few} instructions grow to {many} with {count} blocks");
}

/// The cut lists the blocks if they are not recorded.
#[test]
#[ignore = "long tier"]
fn cut_beside_many_blocks_that_are_not_recorded() {
    const INSTRUCTIONS_MAX: u64 = 300;
    let [few, many] = cuts("live", "off", [FEW, MANY]);
    println!("not recorded: {few}, then {many} instructions");
    assert!(many <= few + INSTRUCTIONS_MAX * MANY, "{few} instructions grow to {many}");
}

/// Threads save the rows that they change for the copy. Otherwise the copy would not agree with the
/// allocator, and a second cut would list all blocks.
#[test]
fn one_cut_beside_threads() {
    const SNAPSHOTS: u64 = 4;
    const INSTRUCTIONS_MAX: u64 = 300_000;
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped("valgrind is not installed");
    }
    let place = Place::new();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*snapshots::cut::cut_all*")
        .arg(compile("snapshots_beside.c"))
        .arg(SNAPSHOTS.to_string())
        .current_dir(&place.path)
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", driver_folder())
        .env("CACHEALLOC_CONF", "record:all,context:none,max_entries:20000,log:quiet")
        .output()
        .expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let line = said.lines().find(|line| line.contains("Collected")).expect("a count");
    let counted = line.split_whitespace().last().and_then(|word| word.parse::<u64>().ok());
    let counted = counted.expect("a number");
    // One more snapshot is written at the end.
    assert!((1..=INSTRUCTIONS_MAX * (SNAPSHOTS + 1)).contains(&counted), "{counted} instructions");
}

/// Returns the instructions that the cut of a snapshot takes, for each of these numbers of objects.
fn cuts(kind: &str, record: &str, counts: [u64; 2]) -> [u64; 2] {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skipped("valgrind is not installed");
        return [0; 2];
    }
    counts.map(|count| {
        let file = scratch_file("cut.pickle");
        let options = format!(",record:{record},context:none,log:quiet");
        let counted = counted_in("*snapshots::cut::cut_all*", kind, &options, count, Some(&file));
        fs::remove_file(&file).expect("it was written");
        assert!(counted.instructions > 0, "the function has another name");
        counted.instructions
    })
}

const FEW: u64 = 1_000;
/// The bound on pending events is lower.
const MANY: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
struct Counted {
    instructions: u64,
    calls: u64,
    queries: u64,
    records: u64,
}

/// Checks that the calls cost the same beside few objects and beside many.
#[track_caller]
fn curve(kind: &str, options: &str, many: u64) -> [Counted; 2] {
    between(kind, options, [FEW, many])
}

#[track_caller]
fn between(kind: &str, options: &str, counts: [u64; 2]) -> [Counted; 2] {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skipped("valgrind is not installed");
        return [Counted { instructions: 0, calls: 64, queries: 0, records: 1 }; 2];
    }
    let both = counts.map(|count| counted(kind, options, count));
    let [few, many] = both.map(|counted| counted.instructions);
    println!("{kind}: {both:?}");
    assert!(2 * many <= 3 * few, "{kind}: {few} instructions grow to {many}");
    both
}

fn counted(kind: &str, options: &str, count: u64) -> Counted {
    counted_in("counted", kind, options, count, None)
}

/// Counts the instructions of this function. `file` is the program's last argument.
fn counted_in(
    function: &str,
    kind: &str,
    options: &str,
    count: u64,
    file: Option<&Path>,
) -> Counted {
    let null = compile_library("growing_driver.c", "driver_growing/libcuda.so.1", &[]);
    let null = null.parent().expect("it has a folder");
    let simulated = driver_folder();
    let driver: &Path = if kind == "capture" { &simulated } else { null };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={function}"))
        .arg(compile("curve.c"))
        .args([kind, &count.to_string()])
        .args(file)
        .env("LD_PRELOAD", library())
        .env("LD_LIBRARY_PATH", driver)
        .env("CACHEALLOC_CONF", format!("snapshot:/dev/null/no{options}"))
        .output()
        .expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{kind}: {said}");
    let line = said.lines().find(|line| line.contains("Collected")).expect("a count");
    let instructions = line.split_whitespace().last().and_then(|word| word.parse().ok());
    let asked = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = asked.split_whitespace().filter_map(|word| word.parse().ok());
    let mut next = || numbers.next().expect("three numbers");
    let instructions = instructions.expect("a number");
    Counted { instructions, calls: next(), queries: next(), records: next() }
}
