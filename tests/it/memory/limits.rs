//! A limit and the strategies, seen by a program (`tests/programs/limits.rs`) on a device of 512
//! MiB.

use cachealloc_core::rules::Rule;
use cachealloc_tests::{Ran, Run};

const LIMIT: &str = "gpu_memory_limit_mb:100";

fn run(case: &str, settings: &str) -> Run {
    let run = Run::program(env!("CARGO_BIN_EXE_limits"));
    run.args(case).env("SIM_MEMORY_MB", "512").conf(settings)
}

#[track_caller]
fn check(case: &str, settings: &str, wanted: &str) -> Ran {
    let ran = run(case, settings).output().ok();
    let lines = |text: &str| -> Vec<String> { text.lines().map(|l| l.trim().into()).collect() };
    assert_eq!(lines(&ran.stdout), lines(wanted.trim()), "{case} with {settings}: {}", ran.stderr);
    assert_eq!(ran.report.races(), 0);
    ran
}

/// The request is refused without a driver call, with its code and its null pointer. The cache is
/// released first, and the program continues. The device memory that it sees stays within the
/// limit.
#[test]
fn blocks_stay_within_the_limit() {
    const BLOCKS: &str = "
        device: 100
        at first: 100 of 100 free
        60: 0
        60 more: 2
        pointer: 0, driver asked: 0
        with 60: 40 of 100 free
        freed: 0
        freed: 100 of 100 free
        90: 0
        with 90: 10 of 100 free
        never: 2
        small: 0
        freed: 0
        never: 2";
    let ran = check("blocks", LIMIT, BLOCKS);
    let said = &ran.stderr;
    assert!(
        said.contains("asked for 60.0 MiB of linear memory, more than gpu_memory_limit_mb allows"),
        "{said}"
    );
    assert!(said.contains("448 MiB free of 512 MiB"), "{said}");
    // Every way to set it, and of two limits the smaller one.
    check("blocks", "gpu_memory_limit_mb:300,per_process_memory_fraction:0.1953125", BLOCKS);
    check("blocks", "gpu_memory_limit_mb:100,per_process_memory_fraction:0.9", BLOCKS);
    check("blocks", "gpu_memory_limit_mb:100,record:all,snapshot:/dev/null,log:quiet", BLOCKS);
    check("blocks", "gpu_memory_limit_mb:100,expandable_segments:true", BLOCKS);
    check("blocks", "gpu_memory_limit_mb:100,fraction_of_gpu_memory_to_use:0", BLOCKS);
    let ran = run("blocks", "per_process_memory_fraction:0.1953125").output().ok();
    assert!(ran.stderr.contains("more than per_process_memory_fraction allows"), "{}", ran.stderr);
}

/// Blocks that are kept for sizes requested in turn serve other requests once memory is short.
#[test]
fn sizes_in_turn_leave_the_limit_to_others() {
    let run = Run::c("sizes_in_turn.c").env("SIM_MEMORY_MB", "512").conf("gpu_memory_limit_mb:64");
    assert_eq!(run.output().ok().stdout.trim(), "128");
    // Where memory is short, none is kept where other blocks would fit.
    let run = || Run::c("sizes_in_turn.c").arg("448").env("SIM_MEMORY_MB", "512");
    let [native, ours] = [run().native(), run().conf("log:quiet")].map(|it| it.output().ok());
    assert_eq!(ours.stdout, native.stdout);
}

/// Memory that the driver serves itself counts too, whether or not anything is recorded.
#[test]
fn all_kinds_of_device_memory_count() {
    let kinds = |asked: u32| {
        ["pitched", "block", "physical", "array", "pool"]
            .map(|kind| {
                format!(
                    "never: 2\ndriver asked: {asked}\n{kind}: 0\nheld: 40 of 100 free\nanother: 2\n\
                     a block: 2\nend: 0\nended: 100 of 100 free\n"
                )
            })
            .concat()
    };
    let (uncached, kinds) = (kinds(1), kinds(0));
    check("kinds", LIMIT, &kinds);
    check("kinds", "gpu_memory_limit_mb:100,free_mode:strict", &kinds);
    check("kinds", "gpu_memory_limit_mb:100,record:all,snapshot:/dev/null,log:quiet", &kinds);
    check("kinds", "gpu_memory_limit_mb:100,expandable_segments:true", &kinds);
    check("kinds", "gpu_memory_limit_mb:100,fraction_of_gpu_memory_to_use:0", &uncached);
}

/// A part of a device counts for that device.
#[test]
fn memory_of_a_part_of_a_device_counts() {
    let kinds = ["physical", "pool"].map(|kind| {
        format!(
            "never: 2\ndriver asked: 0\n{kind}: 0\nheld: 40 of 100 free\nanother: 2\na block: 2\nend: 0\n\
             ended: 100 of 100 free\n"
        )
    });
    let ran = run("kinds-of-a-part", LIMIT).env("SIM_DRIVER_VERSION", "13040").output().ok();
    assert_eq!(ran.stdout, kinds.concat());
}

#[test]
fn physical_memory_counts_while_it_is_mapped_or_referred_to() {
    check(
        "physical",
        LIMIT,
        "
        refused release: 1
        release: 0
        unmap: 0
        one reference: 40 of 100 free
        refused release: 1
        one reference: 40 of 100 free
        release: 0
        nothing: 100 of 100 free
        release: 0
        mapped: 40 of 100 free
        another: 2
        refused unmap: 1
        mapped: 40 of 100 free
        unmap: 0
        nothing: 100 of 100 free",
    );
}

/// Only the driver knows the size of a row: if the memory exceeds the limit, it is released again,
/// and nothing is lost.
#[test]
fn pitched_memory_over_the_limit_is_released() {
    let wanted = "rows: 2\npointer: 0\nrefused: 100 of 100 free\nin use: false";
    let ran = check("pitch", LIMIT, wanted);
    assert_eq!(ran.report.calls("cuMemAllocPitch_v2"), 1);
}

#[test]
fn a_limit_refuses_no_more_than_it_must() {
    check(
        "last-word",
        LIMIT,
        "
        rows: 0
        too many: 2
        pitch: 512
        release: 0
        again: 1
        unmap: 0
        nothing: 100 of 100 free
        odd: 1
        even: 2
        driver asked: 0",
    );
}

#[test]
fn a_limit_is_one_for_all_contexts_of_the_device() {
    let wanted = "
        block: 0
        array: 0
        held: 20 of 100 free
        held by the other: 20 of 100 free
        no room: 2
        ended: 100 of 100 free
        room: 0
        reset: 100 of 100 free";
    check("contexts", LIMIT, wanted);
    check("contexts", "gpu_memory_limit_mb:100,expandable_segments:true", wanted);
}

#[test]
fn memory_that_need_not_be_on_the_device_does_not_count() {
    let wanted = "managed: 0\npinned: 0\nphysical, on the host: 0\npool, on the host: 0\nblock: 0";
    check("uncounted", LIMIT, wanted);
}

#[test]
fn stream_ordered_requests_stay_within_the_limit() {
    let wanted =
        "60: 0\n60 more: 2\npointer: 0\nfreed: 0\n90: 0\nwith 90: 10 of 100 free\nfreed: 0";
    check("async", LIMIT, wanted);
    check("async", "gpu_memory_limit_mb:100,async:false", wanted);
}

#[test]
fn stream_ordered_requests_count_on_the_device_of_their_stream() {
    let answers = |broken: &str| {
        let run = run("other-device", LIMIT).env("SIM_DEVICES", "2");
        run.env("CACHEALLOC_BREAK", broken).output().ok().stdout
    };
    let wanted = "60 here: 0\n60 there: 0\nhere: 40 of 100 free\n60 more there: 2\n\
                  there: 40 of 100 free\nfreed: 0\n";
    assert_eq!(answers(""), wanted);
    let broken = answers(Rule::StreamNamesDevice.name());
    assert!(broken.starts_with("60 here: 0\n60 there: 2\n"), "{broken}");
}

#[test]
fn threads_that_race_stay_within_the_limit() {
    check("race", LIMIT, "at most 3\nat the end: 100 of 100 free");
    let racing = run("race", LIMIT).env("CACHEALLOC_BREAK", Rule::LimitClaimsFirst.name());
    let broken = racing.output().ok();
    let most = broken.stdout.lines().next().and_then(|line| line.strip_prefix("at most "));
    let most: u32 = most.expect("a line").parse().expect("a number");
    assert!(most > 3, "without the rule: {}", broken.stdout);
}

/// A limit set by `cachealloc_set_limit`. Garbage collection respects it as it does the option.
#[test]
fn a_limit_by_call() {
    for settings in ["", "garbage_collection_threshold:0.9", "expandable_segments:true"] {
        let wanted = "
        set: 0
        with a block: 40 of 100 free
        60 more: 2
        set: 0
        with less: 0 of 30 free
        1 more: 2
        freed: 30 of 30 free
        30: 0
        set: 0
        60 more: 0
        without: 418 of 512 free
        another device: 19, no device: 19";
        let ran = check("by-call", settings, wanted);
        assert!(ran.stderr.contains("more than cachealloc_set_limit allows"), "{}", ran.stderr);
    }
}

/// Memory that the driver served counts like memory of the cache. Managed memory does not count.
#[test]
fn memory_served_before_a_limit_counts() {
    let kinds = ["pitched", "block", "physical", "array", "pool"].map(|kind| {
        format!(
            "{kind}\nset: 0\nheld: 40 of 100 free\nanother: 2\nend: 0\n\
             ended: 100 of 100 free\nset: 0\n"
        )
    });
    check("before", "", &format!("managed: 0\n{}", kinds.concat()));
}

/// Without a limit nothing changes, and the program sees the whole device.
#[test]
fn no_limit_is_no_limit() {
    for none in ["", "gpu_memory_limit_mb:0,per_process_memory_fraction:1"] {
        let ran = run("blocks", none).output().ok();
        assert!(ran.stdout.starts_with("device: 512\n"), "{}", ran.stdout);
        assert!(ran.stdout.contains("60 more: 0\n"), "{}", ran.stdout);
    }
}

/// The library reads only its own settings, not those of other libraries.
#[test]
fn settings_of_pytorch_are_not_read() {
    let run = run("blocks", "").env("PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.1,x");
    let ran = run.env("PYTORCH_ALLOC_CONF", "max_split_size_mb:1").output().ok();
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.starts_with("device: 512\n"), "{}", ran.stdout);
}

/// One chunk, allocated at the first request, serves small and large requests, stream-ordered or
/// not.
#[test]
fn a_chunk_serves_all() {
    check(
        "steps z a A 1 a B 30720 s C 2048 z f A f B a D 409600 f D z",
        "strategy:pre_allocate",
        "
        z: 508 of 512 free
        a A: 0, 1 calls
        a B: 0, 0 calls
        s C: 0, 0 calls
        z: 42 of 512 free
        f A: 0, 0 calls
        f B: 0, 0 calls
        a D: 0, 0 calls
        f D: 0, 0 calls
        z: 42 of 512 free",
    );
}

/// A full chunk is followed by another one. A request larger than a chunk is served by the driver,
/// and its memory is returned at once when freed.
#[test]
fn chunks_have_the_requested_sizes() {
    let sizes = "initial_gpu_memory_in_mb:100,reallocate_gpu_memory_in_mb:40";
    check(
        "steps a A 81920 a B 30720 a C 92160 z a D 122880 f D f A f B f C z",
        &format!("strategy:pre_allocate,{sizes}"),
        "
        a A: 0, 1 calls
        a B: 0, 1 calls
        a C: 0, 1 calls
        z: 278 of 512 free
        a D: 0, 1 calls
        f D: 0, 1 calls
        f A: 0, 0 calls
        f B: 0, 0 calls
        f C: 0, 0 calls
        z: 508 of 512 free",
    );
}

#[test]
fn unavailable_chunk_is_halved() {
    check(
        "steps a A 10240 z a B 204800 f A f B a C 460800",
        "strategy:pre_allocate,initial_gpu_memory_in_mb:4000",
        "
        a A: 0, 1 calls
        z: 8 of 512 free
        a B: 0, 0 calls
        f A: 0, 0 calls
        f B: 0, 0 calls
        a C: 0, 0 calls",
    );
}

/// A free chunk that is too small for a request is released to make room.
#[test]
fn a_free_chunk_makes_room() {
    check(
        "steps a A 1024 f A a B 460800 z",
        "strategy:pre_allocate,initial_gpu_memory_in_mb:100,reallocate_gpu_memory_in_mb:100",
        "
        a A: 0, 1 calls
        f A: 0, 0 calls
        a B: 0, 1 calls
        z: 58 of 512 free",
    );
}

/// Requests larger than a chunk, which the driver serves, count as well.
#[test]
fn more_than_a_chunk_stays_within_the_limit() {
    let sizes = "initial_gpu_memory_in_mb:20,reallocate_gpu_memory_in_mb:20";
    check(
        "steps a A 1024 a B 61440 z a C 40960 f B z a C 40960",
        &format!("strategy:pre_allocate,gpu_memory_limit_mb:100,{sizes}"),
        "
        a A: 0, 1 calls
        a B: 0, 1 calls
        z: 20 of 100 free
        a C: 2, 0 calls
        f B: 0, 1 calls
        z: 80 of 100 free
        a C: 0, 1 calls",
    );
}

/// The cache is not emptied for a request that can never succeed.
#[test]
fn impossible_request_makes_no_driver_call() {
    check(
        "steps a A 61440 f A a B 204800 a A 61440",
        LIMIT,
        "
        a A: 0, 1 calls
        f A: 0, 0 calls
        a B: 2, 0 calls
        a A: 0, 0 calls",
    );
}

/// The chunk is sized by the memory that the limit leaves.
#[test]
fn a_chunk_stays_within_the_limit() {
    check(
        "steps a A 10240 z a B 92160 f A a C 92160 z",
        "strategy:pre_allocate,gpu_memory_limit_mb:100",
        "
        a A: 0, 1 calls
        z: 8 of 100 free
        a B: 2, 0 calls
        f A: 0, 0 calls
        a C: 0, 0 calls
        z: 8 of 100 free",
    );
}

/// This setting shows how much memory a program really uses.
#[test]
fn with_a_fraction_of_0_every_request_is_the_drivers() {
    for strategy in ["auto_growth", "pre_allocate"] {
        check(
            "steps a A 10240 a B 10 f B a B 10 s C 2048 f A f C",
            &format!("strategy:{strategy},fraction_of_gpu_memory_to_use:0"),
            "
            a A: 0, 1 calls
            a B: 0, 1 calls
            f B: 0, 1 calls
            a B: 0, 1 calls
            s C: 0, 1 calls
            f A: 0, 1 calls
            f C: 0, 1 calls",
        );
    }
}

/// PyTorch's `test_out_of_memory_retry` and `test_memory_fraction`, through the whole library.
#[test]
fn half_of_the_memory_twice() {
    check(
        "steps a A 262144 a B 262144 f A a B 262144",
        "",
        "
        a A: 0, 1 calls
        a B: 2, 1 calls
        f A: 0, 0 calls
        a B: 0, 0 calls",
    );
    check(
        "steps a A 102400 z a B 30720 f A a B 122880",
        "per_process_memory_fraction:0.25",
        "
        a A: 0, 1 calls
        z: 28 of 128 free
        a B: 2, 0 calls
        f A: 0, 0 calls
        a B: 0, 1 calls",
    );
}

/// PyTorch's test cases for a budget of 120 MB: blocks that are not split, and garbage collection.
#[test]
fn a_budget_of_three_tensors() {
    check(
        "steps a A 40960 a B 40960 a C 40960 a D 40960 f A f B f C a E 122880",
        "gpu_memory_limit_mb:120,max_split_size_mb:40",
        "
        a A: 0, 1 calls
        a B: 0, 1 calls
        a C: 0, 1 calls
        a D: 2, 0 calls
        f A: 0, 0 calls
        f B: 0, 0 calls
        f C: 0, 0 calls
        a E: 0, 1 calls",
    );
    check(
        "steps a A 40960 a B 40960 f A f B a C 81920 z",
        "gpu_memory_limit_mb:120,garbage_collection_threshold:0.5",
        "
        a A: 0, 1 calls
        a B: 0, 1 calls
        f A: 0, 0 calls
        f B: 0, 0 calls
        a C: 0, 1 calls
        z: 40 of 120 free",
    );
    // The threshold is a share of the limit, not of the device: one of two idle tensors is
    // released.
    check(
        "steps a A 61440 a B 61440 f A a S 1 f B a C 71680 a A 61440 a B 61440",
        "gpu_memory_limit_mb:200,garbage_collection_threshold:0.5",
        "
        a A: 0, 1 calls
        a B: 0, 1 calls
        f A: 0, 0 calls
        a S: 0, 1 calls
        f B: 0, 0 calls
        a C: 0, 1 calls
        a A: 0, 0 calls
        a B: 0, 1 calls",
    );
    // `test_raises_oom`: requests a tebibyte, with and without `max_split_size_mb`.
    for settings in ["", "max_split_size_mb:1024"] {
        let ran = check("steps a A 1073741824 a B 1", settings, "a A: 2, 1 calls\na B: 0, 1 calls");
        assert!(ran.stderr.contains("asked for 1.00 TiB"), "{}", ran.stderr);
    }
}

/// The driver runs out of memory once: the cache is released, and the second try succeeds.
#[test]
fn a_request_that_fails_once_is_tried_again() {
    let steps = "steps a A 40960 f A a B 61440";
    let wanted = "a A: 0, 1 calls\nf A: 0, 0 calls\na B: 0, 2 calls";
    let ran = run(steps, "").env("SIM_FAIL", "cuMemAlloc_v2@2=2").output().ok();
    assert_eq!(ran.stdout.trim(), wanted);
}

#[test]
fn help_is_printed_once_and_the_program_runs() {
    let ran = run("steps a A 1", "help").output().ok();
    assert_eq!(ran.stderr, cachealloc_options::help());
    assert_eq!(ran.stdout, "a A: 0, 1 calls\n");
}
