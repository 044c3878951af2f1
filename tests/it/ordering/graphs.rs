//! Captures that allocate and free (`graphs/private_pools.rs`).

use std::fmt::Write;

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Run, lacks, tier};

use crate::ordering::hazards::problems;
use crate::ordering::random;
use crate::record::snapshots::Place;

const CAPTURES: [&str; 3] = ["thread-local", "global", "relaxed"];
const MODES: [&str; 3] = ["ordered", "strict", "relaxed"];

fn program(name: &str, capture: &str) -> Run {
    Run::program(env!("CARGO_BIN_EXE_graphs")).arg(name).arg(capture)
}

/// Checks that the run succeeds silently and that the simulation found nothing, and returns its
/// output.
#[track_caller]
fn clean(run: Run) -> String {
    let ran = run.output().ok();
    assert_eq!((problems(&ran), &*ran.stderr), (vec![], ""), "{ran:#?}");
    ran.stdout.trim().to_string()
}

/// Runs the program in every kind of capture and in every free mode.
#[track_caller]
fn everywhere(name: &str, said: &str) {
    for capture in CAPTURES {
        for mode in MODES {
            let run = program(name, capture).conf(&format!("free_mode:{mode}"));
            assert_eq!(clean(run), said, "{name}, {capture} capture, {mode}");
        }
    }
}

#[test]
fn launches_find_their_memory() {
    everywhere("launches", "ok");
}

#[test]
fn memory_freed_in_order_is_reused() {
    everywhere("reuse", "again");
    let off = program("reuse", "global").conf("graph_capture_record_stream_reuse:false");
    assert_eq!(clean(off), "not again");
}

#[test]
fn branches_meet_before_they_share() {
    everywhere("branches", "apart: false, together: true");
}

#[test]
fn late_stream_is_ordered_after_reused_memory() {
    everywhere("late_join", "again");
    everywhere("late_join_of_an_edited", "again");
}

#[test]
fn memory_lives_as_long_as_any_executable() {
    everywhere("outlives", "ok");
}

#[test]
fn memory_left_by_a_capture_belongs_to_the_program() {
    everywhere("freed_later", "free (0, 1, 1)");
}

#[test]
fn frees_of_other_threads_wait_for_the_graph() {
    everywhere("freed_by_another_thread", "ok");
}

#[test]
fn threads_that_a_capture_forbids_to_allocate_are_served_by_it() {
    let said = clean(program("another_thread", "global"));
    assert_eq!(said, "own memory: true, kept: true");
}

#[test]
fn a_capture_gets_only_what_was_idle_before_it() {
    for mode in ["ordered", "strict"] {
        let run = program("freed_before", "global").conf(&format!("free_mode:{mode}"));
        assert_eq!(clean(run), "right: true, idle memory serves: true, held back: true");
    }
    // Memory that waits for an event is not known to be idle.
    let relaxed = program("freed_before", "relaxed").conf("free_mode:relaxed");
    assert_eq!(clean(relaxed), "right: true, idle memory serves: false, held back: true");
}

#[test]
fn dead_capture_loses_no_memory() {
    for capture in CAPTURES {
        let ran = program("dies", capture).output().ok();
        let said = ran.stdout.trim();
        assert!(said.ends_with("memory back") && said.starts_with("killed 9"), "{said}");
    }
    everywhere("abandoned", "ok");
}

#[test]
fn capture_survives_out_of_memory() {
    for capture in CAPTURES {
        let run = program("full", capture).env("SIM_MEMORY_MB", "192");
        let ran = run.output().ok();
        assert_eq!(problems(&ran), [""; 0]);
        assert_eq!(ran.stdout.trim(), "3 served, then 2; right: true; afterwards 3");
    }
}

#[test]
fn an_updated_executable_keeps_the_memory_of_the_other_graph() {
    for capture in ["thread-local", "global"] {
        assert_eq!(clean(program("updated", capture)), "right: true, kept: true", "{capture}");
    }
}

#[test]
fn stream_ordered_memory_is_the_drivers_or_the_pools() {
    let nodes = clean(program("ordered_memory", "thread-local"));
    assert!(nodes.contains("clone 801, second executable 801, right true"), "{nodes}");
    let pool = clean(program("ordered_memory", "thread-local").conf("graph_pool:true"));
    assert_eq!(
        pool, "3 nodes, clone 0, second executable 0, right true true, freed (0, 0)",
        "natively: {nodes}"
    );
}

#[test]
fn the_memory_of_a_graph_waits_for_its_last_user() {
    everywhere("freed_in_use", "ok");
    // The driver reports the end of the graph asynchronously.
    let caught = (0..40).any(|_| {
        let run = program("freed_in_use", "global").conf("free_mode:relaxed");
        let ran = run.env("CACHEALLOC_BREAK", Rule::PoolEndsAfterEvent.name()).output();
        ran.stdout.contains("FAIL")
    });
    assert!(caught);
}

#[test]
fn the_memory_of_a_graph_waits_for_its_last_user_elsewhere() {
    everywhere("freed_elsewhere", "ok");
    let caught = (0..40).any(|_| {
        let run = program("freed_elsewhere", "relaxed").conf("free_mode:ordered");
        let ran = run.env("CACHEALLOC_BREAK", Rule::PoolEndsAfterNotedUses.name()).output();
        ran.stdout.contains("FAIL") || !problems(&ran).is_empty()
    });
    assert!(caught);
}

#[test]
fn memory_freed_after_unordered_work_is_not_reused() {
    everywhere("freed_outside", "ok");
    // In a relaxed capture it is ordinary memory.
    let ran = program("freed_outside", "thread-local")
        .env("CACHEALLOC_BREAK", Rule::OutsideFreeWaitsForPool.name())
        .output();
    assert!(!problems(&ran).is_empty() || ran.stdout.contains("FAIL"), "{ran:#?}");
}

#[test]
fn memory_of_a_just_destroyed_graph_is_available() {
    for name in [
        "needed_at_once",
        "needed_unlaunched",
        "needed_after_an_update",
        "destroyed_beside_a_capture",
    ] {
        for capture in CAPTURES {
            let run = program(name, capture).env("SIM_MEMORY_MB", "160");
            let ran = run.conf("log:quiet").output();
            assert_eq!((ran.stdout.trim(), problems(&ran)), ("ok", vec![]), "{name}, {capture}");
        }
    }
    for (name, rule) in [
        ("destroyed_beside_a_capture", Rule::WaitedPoolEndsAtOnce),
        ("needed_at_once", Rule::GraphEndsAreAwaited),
        ("needed_unlaunched", Rule::GraphEndsOfBothKinds),
    ] {
        let run = program(name, "global").env("SIM_MEMORY_MB", "160").conf("log:quiet");
        let ran = run.env("CACHEALLOC_BREAK", rule.name()).output();
        assert!(ran.stdout.contains("FAIL"), "{}: {ran:#?}", rule.name());
    }
    // The scavenger may have read the notice.
    let run = program("needed_at_once", "global").env("SIM_MEMORY_MB", "160").conf("log:quiet");
    let run = run.env("CACHEALLOC_PASS_MS", "1");
    for _ in 0..tier::count(3, 40) {
        assert_eq!(run.output().stdout.trim(), "ok");
    }
    let ran = run.env("CACHEALLOC_BREAK", Rule::ReapInProgressIsAwaited.name()).output();
    assert!(ran.stdout.contains("FAIL"), "{ran:#?}");
}

#[test]
fn memory_of_a_graph_is_available_after_a_waiting_free() {
    let run = |name: &str, capture: &str, mode: &str| {
        let conf = format!("log:quiet,free_mode:{mode}");
        program(name, capture).env("SIM_MEMORY_MB", "160").conf(&conf)
    };
    for name in ["needed_behind_a_free", "needed_behind_several_frees"] {
        let all = CAPTURES.iter().flat_map(|capture| MODES.map(|mode| (capture, mode)));
        // The long tier combines each kind of capture with each mode, the fast tier takes every
        // fourth combination.
        for (capture, mode) in all.step_by(tier::count(4, 1)) {
            let ran = run(name, capture, mode).output();
            let found = (ran.stdout.trim(), problems(&ran));
            assert_eq!(found, ("ok", vec![]), "{name}, {capture} capture, {mode}");
        }
    }
    // The work ends between two calls: the free finds it complete.
    for mode in MODES {
        let ran = run("needed_behind_a_free", "relaxed", mode).env("SIM_IDLE_MS", "0").output();
        assert_eq!((ran.stdout.trim(), problems(&ran)), ("ok", vec![]), "{mode}");
    }
    // A wait or a query may also have shown that the work is complete.
    for name in ["needed_behind_a_wait", "needed_behind_a_query"] {
        let ran = run(name, "relaxed", "ordered").output();
        assert_eq!((ran.stdout.trim(), problems(&ran)), ("ok", vec![]), "{name}");
    }
    let ran = run("needed_behind_a_free", "global", "ordered")
        .env("CACHEALLOC_BREAK", Rule::GraphEndsAfterFrees.name())
        .output();
    assert!(ran.stdout.contains("FAIL"), "{ran:#?}");
}

#[test]
fn threads_capture_at_once() {
    // In a global capture, other threads' work would be part of it or end it.
    for capture in ["thread-local", "relaxed"] {
        for mode in MODES {
            let run = program("default_streams", capture).conf(&format!("free_mode:{mode}"));
            assert_eq!(clean(run), "ok", "{capture} capture, {mode}");
        }
    }
    assert_eq!(clean(program("modes_beside_each_other", "")), "ok");
}

#[test]
fn default_streams_of_threads_are_not_mixed_up() {
    for capture in ["thread-local", "relaxed"] {
        let said = clean(program("another_default_stream", capture));
        assert_eq!(said, "own memory: true, right: true");
    }
}

#[test]
fn joined_stream_may_be_destroyed() {
    everywhere("side_stream_goes", "again: true, right: true");
}

#[test]
fn a_capture_ends_with_its_context() {
    // The other kinds of capture do not permit the reset.
    for mode in MODES {
        assert_eq!(clean(program("reset", "relaxed").conf(&format!("free_mode:{mode}"))), "ok");
    }
}

#[test]
fn a_process_forks_in_a_capture() {
    everywhere("forks", "child 7, right: true");
}

/// A refused request must not wait for a free that itself waits for the capture: each would take
/// seconds.
#[test]
fn frees_in_a_capture_block_no_other_thread() {
    let ran = program("freed_while_full", "global").env("SIM_MEMORY_MB", "160").output();
    assert_eq!((ran.stdout.trim(), problems(&ran)), ("refused: true, ended 0", vec![]));
}

/// Only a relaxed capture lets the program take its memory away, as the driver does.
#[test]
fn memory_of_a_recapture_belongs_to_its_graph() {
    for capture in ["thread-local", "global"] {
        let run = program("captured_again", capture).env("SIM_DRIVER_VERSION", "13050");
        assert_eq!(clean(run), "ok", "{capture} capture");
    }
}

#[test]
fn edited_captures_reuse_no_memory() {
    everywhere("edited", "again: false, ended 0");
    for kind in ["memory_operations", "signals", "waits"] {
        let said = clean(program(&format!("edited_by_{kind}"), "thread-local"));
        assert_eq!(said, "again: false, ended 0", "by {kind}");
    }
    everywhere("set_back", "again");
}

#[test]
fn stream_that_joins_unseen_gets_no_memory_used_before() {
    everywhere("joined_unseen", "ok");
    everywhere("joined_unseen_beside_a_free", "ok");
    let broken = program("joined_unseen_beside_a_free", "thread-local");
    let ran = broken.env("CACHEALLOC_BREAK", Rule::PoolAfterLook.name()).output();
    assert!(!problems(&ran).is_empty() || ran.stdout.contains("FAIL"), "{ran:#?}");
}

#[test]
fn early_start_does_not_use_memory_just_freed() {
    everywhere("early", "again: true, right: true");
}

#[test]
fn threads_that_submit_take_part() {
    everywhere("backward", "ok");
    everywhere("handed_over", "ok");
    everywhere("copied_in_rows", "ok");
    for (name, rule) in [
        ("copied_in_rows", Rule::SubmittingThreadTakesPart),
        ("backward", Rule::AllocatedBlocksJoin),
    ] {
        let ran = program(name, "thread-local").env("CACHEALLOC_BREAK", rule.name()).output();
        assert!(!problems(&ran).is_empty() || ran.stdout.contains("FAIL"), "{}", rule.name());
    }
}

#[test]
fn a_capture_has_memory_in_every_context() {
    for capture in CAPTURES {
        for mode in MODES {
            for name in ["two_contexts", "two_devices"] {
                let run = program(name, capture).env("SIM_DEVICES", "2");
                let said = clean(run.conf(&format!("free_mode:{mode}")));
                assert_eq!(said, "ok", "{name}, {capture} capture, {mode}");
            }
        }
    }
    let broken = program("two_contexts", "global");
    let ran = broken.env("CACHEALLOC_BREAK", Rule::CaptureInEveryContext.name()).output();
    assert!(!problems(&ran).is_empty() || ran.stdout.contains("FAIL"), "{ran:#?}");
}

#[test]
fn memory_referenced_by_nodes_stays_with_the_graph() {
    for (capture, said) in [("relaxed", "given back"), ("global", "kept"), ("thread-local", "kept")]
    {
        assert_eq!(clean(program("unnamed", capture)), said, "{capture}");
        assert_eq!(clean(program("long_arguments", capture)), said, "{capture}");
    }
    let broken = program("freed_later", "thread-local");
    let ran = broken.env("CACHEALLOC_BREAK", Rule::ReferencedStaysWithGraph.name()).output();
    assert!(!problems(&ran).is_empty() || ran.stdout.contains("FAIL"), "{ran:#?}");
}

#[test]
fn captures_get_what_only_the_cache_has() {
    let chunk = "strategy:pre_allocate,initial_gpu_memory_in_mb:64,log:quiet";
    let small = |name, capture| program(name, capture).env("SIM_MEMORY_MB", "80").conf(chunk);
    let said = clean(small("part_of_cache", "relaxed"));
    assert_eq!(said, "served, right: true, kept: false, back: true");
    // Without the library neither the free nor the request succeeds.
    assert_eq!(clean(small("part_of_cache", "global")), "refused 2");
    assert_eq!(clean(small("named_part", "relaxed")), "apart");
    let broken =
        small("named_part", "relaxed").env("CACHEALLOC_BREAK", Rule::AdoptUnreferenced.name());
    assert_eq!(broken.output().stdout.trim(), "FAIL");
}

#[test]
fn random_captures() {
    for mode in ["ordered", "strict", "relaxed", "ordered,graph_capture_record_stream_reuse:false"]
    {
        check(mode);
    }
    check("ordered,expandable_segments:true");
    check("ordered,strategy:pre_allocate,initial_gpu_memory_in_mb:64");
    check("ordered,gpu_memory_limit_mb:160");
    check("ordered,graph_pool:true");
    check("relaxed,graph_pool:true");
}

fn check(mode: &str) {
    let mut failures = String::new();
    for seed in 1..=seeds() {
        if let Some(problem) = random::problem(&random_run(seed, mode).output()) {
            writeln!(failures, "graphs random {seed} {OPS}: {problem}").unwrap();
        }
    }
    assert!(failures.is_empty(), "in mode {mode}:\n{failures}");
}

const OPS: u64 = 60;

fn random_run(seed: u64, mode: &str) -> Run {
    let memory_mb = if seed.is_multiple_of(3) { "192" } else { "2048" };
    Run::program(env!("CARGO_BIN_EXE_graphs"))
        .args(&format!("random {seed} {OPS} {}", if mode.contains("pool") { "pool" } else { "" }))
        .env("SIM_MEMORY_MB", memory_mb)
        .conf(&format!("free_mode:{mode}"))
}

fn seeds() -> u64 {
    std::env::var("RANDOM_SEEDS")
        .map_or(tier::count(10, 150), |text| text.parse().expect("a number"))
}

/// Each rule of captures is needed: without it some random program goes wrong.
#[test]
fn without_a_rule_captures_go_wrong() {
    let caught = |rule: Rule| {
        (1..=1_000).find_map(|seed| {
            let run = random_run(seed, "ordered").env("CACHEALLOC_BREAK", rule.name());
            random::problem(&run.output()).map(|problem| (seed, problem))
        })
    };
    for rule in [
        Rule::PrivateWaitsForPool,
        Rule::PoolLivesWithGraph,
        Rule::CaptureFreeMarks,
        Rule::CaptureFreeMarksEveryStream,
    ] {
        let Some((seed, problem)) = caught(rule) else { panic!("{} is not caught", rule.name()) };
        println!("{}: seed {seed}, {problem}", rule.name());
    }
}

/// Private pools are in the snapshot while their graph lives, and their history fits together.
#[test]
fn snapshots_show_private_pools() {
    if lacks("python3") {
        return;
    }
    const RECORDED: &str = "record:all,snapshot:%n.pickle,signal:off";
    for seed in 1..=tier::count(5, 20) {
        let place = Place::new();
        let ran = place.run(&random_run(seed, &format!("ordered,{RECORDED}")));
        assert_eq!(random::problem(&ran), None);
        place.sound(1..=100, &["--from-start"]);
    }
    let place = Place::new();
    // The blocks of a relaxed capture that is never ended.
    let ran = place.run(&program("left_open", "relaxed").conf(RECORDED));
    assert_eq!((ran.stdout.trim(), problems(&ran)), ("ok", vec![]));
    place.sound(1..=1, &["--from-start"]);
    let shown = std::process::Command::new("python3")
        .args(["-c", SHOW_POOLS])
        .current_dir(&place.path)
        .output()
        .expect("python3 is installed");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(
        shown.trim(),
        "(0, 0) active_allocated / (1, 0) active_allocated active_pending_free inactive\n\
         entries of [(0, 0), (1, 0)], as their blocks: True"
    );
}

const SHOW_POOLS: &str = "
import glob, pickle
snapshot = pickle.load(open(glob.glob('*.pickle')[0], 'rb'))
segments = snapshot['segments']
pools = {}
for segment in segments:
    states = pools.setdefault(tuple(segment['segment_pool_id']), set())
    states.update(block['state'] for block in segment['blocks'])
print(' / '.join(f'{pool} ' + ' '.join(sorted(states)) for pool, states in sorted(pools.items())))
entries = snapshot['device_traces'][0]
asked = {entry['addr']: entry['pool_id'] for entry in entries if entry['action'] in ('alloc', 'segment_alloc')}
active = [(block['address'], segment['segment_pool_id']) for segment in segments for block in segment['blocks']
          if block['state'] != 'inactive']
as_blocks = all(asked[address] == pool for address, pool in active)
print('entries of', sorted({entry['pool_id'] for entry in entries}), end=', ')
print('as their blocks:', as_blocks)
";
