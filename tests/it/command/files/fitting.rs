//! `cachealloc fit` predicts what happens when the recorded program runs again.

use std::fs;
use std::process::Command;

use cachealloc_tests::{Ran, Run, lacks, root};
use serde_json::Value;

use super::sites::{planted, run, said};
use crate::command::cachealloc;
use crate::record::snapshots::Place;

const MIB: u64 = 1 << 20;

/// A trace of `tests/data/traces`, on a device that is large enough.
fn trace(name: &str, conf: &str) -> Run {
    let file = root().join(format!("tests/data/traces/{name}.txt"));
    let run = Run::program(env!("CARGO_BIN_EXE_replay")).arg(file);
    run.env("SIM_MEMORY_MB", "32768").conf(&format!("log:quiet,context:none,{conf}"))
}

fn fit(place: &Place, arguments: &str) -> Value {
    let text = said(place, &format!("fit {arguments} --json"));
    let mut value: Value = serde_json::from_str(&text).expect("it is JSON");
    value["devices"][0].take()
}

fn completes(ran: &Ran) -> bool {
    ran.code == Some(0)
}

fn unknowns(fit: &Value) -> String {
    fit["unknowns"].to_string()
}

/// Within 1 % of the peak and of the smallest limit of the real run, with other options than the
/// recorded ones.
#[test]
fn fit_predicts_what_a_run_needs() {
    for name in ["dtr_unet", "mm_D", "dtr_unroll_gan"] {
        let place = Place::new();
        place.run(&trace(name, "record:all,snapshot:all.pickle")).ok();
        for options in ["", "expandable_segments:true,"] {
            let fit = fit(
                &place,
                &format!("all.pickle --gpu 32G --options={}", options.trim_end_matches(',')),
            );
            let set = &fit["sets"][0];
            let least = set["least_limit"]["bytes"].as_u64().expect("a limit") / MIB;
            let within = |limit: u64| {
                completes(
                    &place.run(&trace(name, &format!("{options}gpu_memory_limit_mb:{limit}"))),
                )
            };
            assert!(within(least), "{name}, {options}: not with {least} MiB");
            let less = least * 99 / 100;
            assert!(!within(less), "{name}, {options}: {least} MiB are said, and {less} do");
            place.run(&trace(name, &format!("{options}stats_on_exit:s.json"))).ok();
            let real =
                device_statistics(&place)["reserved_bytes.all.peak"].as_u64().expect("bytes");
            let said = set["peak_reserved_bytes"].as_u64().expect("bytes");
            assert!(said.abs_diff(real) * 100 <= real, "{name}, {options}: {said}, not {real}");
        }
    }
}

/// Several streams, whose work takes varying time: within two pages of the driver's.
#[test]
fn fit_predicts_random_programs_approximately() {
    const PAGES_MIB: u64 = 4;
    for seed in 1..=6 {
        let place = Place::new();
        let run = Run::program(env!("CARGO_BIN_EXE_random")).arg(seed.to_string()).args("2000 1");
        let random = |conf: &str| place.run(&run.clone().conf(&format!("log:quiet,{conf}"))).ok();
        random("record:all,context:none,snapshot:all.pickle");
        let fit = fit(&place, "all.pickle --options=");
        let said = unknowns(&fit);
        assert!(said.contains("work on a stream is assumed to have ended"), "{said}");
        // The program continues after a failed request.
        let failures = |limit: u64| {
            random(&format!("stats_on_exit:s.json,gpu_memory_limit_mb:{limit}"));
            device_statistics(&place)["num_ooms"].as_u64().expect("a count")
        };
        let least = fit["sets"][0]["least_limit"]["bytes"].as_u64().expect("a limit") / MIB;
        assert_eq!(failures(least + PAGES_MIB), 0, "{seed}: not with {least} MiB");
        assert!(
            failures(least - PAGES_MIB) > 0,
            "{seed}: {least} MiB predicted, but less is enough"
        );
    }
}

fn device_statistics(place: &Place) -> Value {
    let text = fs::read_to_string(place.path.join("s.json")).expect("statistics");
    let mut statistics: Value = serde_json::from_str(&text).expect("JSON");
    statistics["devices"]["0"].take()
}

/// After a failed allocation, the command names options that would have served it.
#[test]
fn other_options_would_have_helped() {
    let place = Place::new();
    let limited = trace("dtr_resnet32", "record:all,snapshot:all.pickle,gpu_memory_limit_mb:9620");
    assert!(!completes(&place.run(&limited)));
    let text = said(&place, "fit all.pickle");
    assert!(
        text.contains("\nfits within a limit of 9.39 GiB with expandable_segments:true\n"),
        "{text}"
    );
    assert!(
        text.contains("no         -           -             -  the default options\n"),
        "{text}"
    );
    assert!(
        text.contains("unknown: 1 request failed in the recorded run and must be served"),
        "{text}"
    );
    let fit = fit(&place, "all.pickle");
    assert_eq!((&fit["verdict"], &fit["sites"]), (&"fits".into(), &Value::Array(vec![])));
    assert_eq!(fit["fits_with"], "expandable_segments:true");
    assert_eq!((&fit["room_bytes"], &fit["room_is_limit"]), (&(9620 * MIB).into(), &true.into()));
    let without = self::fit(&place, "all.pickle --without-failed");
    assert_eq!((&without["verdict"], &without["failed_requests"]), (&Value::Null, &0.into()));
    // A real run confirms it.
    let other = trace("dtr_resnet32", "gpu_memory_limit_mb:9620,expandable_segments:true");
    place.run(&other).ok();
}

#[test]
fn no_options_help() {
    let place = planted();
    let text = said(&place, "fit 5.pickle");
    let first = text.lines().next().expect("a line");
    assert_eq!(
        first,
        "device 0: 110 allocations, of which 1 failed, 1.00 PiB at the peak; the recorded run reserved 62.0 MiB"
    );
    assert!(
        text.contains("\ncannot fit within 1020 MiB: it needs 1.00 PiB at once; these call sites"),
        "{text}"
    );
    let (weights, leak) = (text.find("load_weights"), text.find("leak record/planted.c"));
    assert!(weights.is_some() && weights < leak, "{text}");
    // Without a failed allocation nothing is predicted until a flag asks for it.
    assert!(!said(&place, "fit 5.pickle --without-failed").contains("fit within"));
    let text = said(&place, "fit 2.pickle --gpu 38M");
    assert!(text.contains("\ncannot fit within 38.0 MiB: it needs 38.1 MiB at once"), "{text}");
    assert!(
        said(&place, "fit 2.pickle --gpu 1G")
            .contains("\nfits within 1.00 GiB with the default options\n")
    );
    let fit = fit(&place, "2.pickle --gpu 1G --options per_process_memory_fraction:0.03");
    assert_eq!(
        (&fit["verdict"], &fit["sets"][0]["completes"]),
        (&"fits_with_none".into(), &false.into())
    );
}

#[test]
fn unknowns_are_listed() {
    let place = Place::new();
    place.run(&trace("dtr_unet", "record:all,max_entries:200,snapshot:late.pickle")).ok();
    let fit = fit(&place, "late.pickle --options=");
    let said = unknowns(&fit);
    assert!(said.contains("the oldest ") && said.contains(" entries are lost"), "{said}");
    assert!(
        said.contains("their layout is unknown") && said.contains("is not in a history"),
        "{said}"
    );
    place.run(&trace("dtr_unet", "record:all,snapshot:whole.pickle")).ok();
    let whole = self::fit(&place, "whole.pickle --options=");
    assert_eq!(whole["unknowns"].as_array().map(Vec::len), Some(1), "{whole}");
}

/// Tensors in PyTorch's own cache are the requests that PyTorch would make of the library without
/// that cache.
#[test]
fn pytorchs_snapshots_are_replayed() {
    if lacks("python3") {
        return;
    }
    const MAKE: &str = "
import pickle
def entry(action, addr, size, time):
    return dict(action=action, addr=addr, size=size, stream=7 if addr > 20 else 0, time_us=time, frames=[])
trace = [entry('alloc', 10, 64 << 20, 1), entry('free_requested', 10, 64 << 20, 2), entry('free_completed', 10, 64 << 20, 2),
         entry('free_requested', 99, 32 << 20, 3), entry('alloc', 30, 64 << 20, 4), entry('free_completed', 99, 32 << 20, 5)]
pickle.dump(dict(segments=[], device_traces=[trace]), open('torch.pickle', 'wb'))";
    let place = Place::new();
    let made = Command::new("python3").args(["-c", MAKE]).current_dir(&place.path).status();
    assert!(made.expect("python3 is installed: see .ci/run").success());
    let fit = fit(&place, "torch.pickle --options=");
    assert_eq!((&fit["allocations"], &fit["peak_bytes"]), (&3.into(), &(96 * MIB).into()), "{fit}");
    // The second block has the memory of the first, whatever its stream.
    assert_eq!(fit["sets"][0]["peak_reserved_bytes"], 96 * MIB, "{fit}");
    let said = unknowns(&fit);
    assert!(said.contains("the history begins late, or its oldest entries are lost"), "{said}");
    assert!(said.contains("1 free waited for work"), "{said}");
}

/// Memory that the driver served returns to it at the free; memory that the cache holds serves
/// again.
#[test]
fn memory_beside_the_cache_is_not_kept() {
    if lacks("python3") {
        return;
    }
    const MAKE: &str = "
import pickle, sys
def entry(action, addr, size):
    return dict(action=action, addr=addr, size=size, stream=0, time_us=1, frames=[])
def freed(addr, size): return [entry('free_requested', addr, size), entry('free_completed', addr, size)]
def file(name, *released):
    trace = [entry('segment_alloc', 1 << 30, 32 << 20), entry('alloc', 1 << 30, 32 << 20), *freed(1 << 30, 32 << 20),
             *released, entry('segment_alloc', 2 << 30, 64 << 20), entry('alloc', 2 << 30, 64 << 20), *freed(2 << 30, 64 << 20)]
    ours = dict(cachealloc=dict(version='0'), trace_alloc_dropped=0)
    pickle.dump(dict(segments=[], device_traces=[trace], allocator_settings=ours), open(name, 'wb'))
file('driver.pickle', entry('segment_free', 1 << 30, 32 << 20))
file('cache.pickle')";
    let place = Place::new();
    let made = Command::new("python3").args(["-c", MAKE]).current_dir(&place.path).status();
    assert!(made.expect("python3 is installed: see .ci/run").success());
    for (file, reserved_mib) in [("driver", 64), ("cache", 96)] {
        let fit = fit(&place, &format!("{file}.pickle --options="));
        assert_eq!(fit["sets"][0]["peak_reserved_bytes"], reserved_mib * MIB, "{file}: {fit}");
    }
}

#[test]
fn wrong_questions_are_sentences() {
    let place = planted();
    for (arguments, code, wanted) in [
        (
            "2.pickle --options expandable_segment:true",
            2,
            "unknown option expandable_segment, did you mean",
        ),
        ("2.pickle --options strategy:pre_allocate", 2, "does not depend on the program"),
        ("2.pickle --gpu 80", 2, "expected a size such as 4G or 512M"),
        ("2.pickle --gpu 1K", 2, "at least 1M"),
        (
            "2.pickle --device 3",
            1,
            "2.pickle has no history of device 3; start the program with: cachealloc run",
        ),
        ("no.pickle", 1, "cannot read no.pickle: No such file"),
    ] {
        let ran = run(&place, &format!("fit {arguments}"));
        assert!(ran.stderr.contains(wanted) && ran.code == Some(code), "{arguments}: {ran:?}");
    }
    // Live blocks alone cannot be replayed.
    let state = Run::c("planted.c").arg("2").conf("record:state,log:quiet,snapshot:state.pickle");
    place.run(&state).ok();
    let ran = cachealloc("fit state.pickle").folder(&place.path).output();
    assert!(
        ran.stderr.contains("state.pickle has no history; start") && ran.code == Some(1),
        "{ran:?}"
    );
}
