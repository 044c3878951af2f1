//! Wrong settings, missing files, narrow limits and old drivers: the library reports each once,
//! where a user can act on it, and the program runs.

use cachealloc_tests::{Run, compile, driver_of_version, library, skipped};

#[test]
fn each_wrong_setting_is_one_line_and_the_program_runs() {
    let settings = "no_such_option:1,max_split_size_mb:abc,log:loud,stats_on_exit";
    let ran = Run::c("use.c").conf(settings).output().ok();
    assert_eq!(ran.stdout, "served by libcachealloc.so\n");
    let said = ran.said();
    assert_eq!(said.len(), 4, "{said:#?}");
    for name in ["no_such_option", "max_split_size_mb", "log", "stats_on_exit"] {
        let words = [format!("option {name}"), format!("invalid {name}")];
        let lines = said.iter().filter(|line| words.iter().any(|words| line.contains(words)));
        let lines = lines.count();
        assert_eq!(lines, 1, "{name}: {said:#?}");
    }
    assert_eq!(ran.stderr.lines().count(), 4);
    assert!(ran.report.calls("cuMemAlloc_v2") <= 10, "the rest is as if nothing were set");
}

#[test]
fn settings_that_no_parser_should_choke_on() {
    let long = format!("max_split_size_mb:{}", "9".repeat(5000));
    for settings in
        ["", ",", ":", ":::,,,", "free_mode", "free_mode:", " ", "\u{1F600}:1", "=", &long]
    {
        let ran = Run::c("use.c").conf(settings).output().ok();
        assert_eq!(ran.stdout, "served by libcachealloc.so\n", "{settings:?}");
        assert!(ran.stderr.lines().all(|line| line.starts_with("cachealloc")), "{}", ran.stderr);
    }
}

/// A mode is set for safety or for speed. If the library cannot read which, it chooses safety.
#[test]
fn a_mode_that_cannot_be_read_means_strict() {
    let ran = Run::c("use.c").conf("free_mode:orderd,stats_on_exit:stderr").output().ok();
    let mode = ran.stderr.lines().find(|line| line.contains(" free_mode "));
    assert!(mode.is_some_and(|line| line.trim().ends_with("strict")), "{}", ran.stderr);
}

#[test]
fn a_closed_stderr_is_no_error() {
    let settings = "no_such_option:1,stats_on_exit:stderr,log:info";
    let ran = Run::c("use.c").conf(settings).stderr_closed().output().ok();
    assert_eq!(ran.stdout, "served by libcachealloc.so\n");
}

/// Clusters limit address space (`ulimit -v`): the library must be small in every process that
/// inherits it, and its tables small in a CUDA process.
#[test]
fn little_address_space_is_enough() {
    let limited = "ulimit -v 16384; exec \"$@\"";
    let run = Run::program("sh").arg("-c").arg(limited).arg("sh").arg(compile("quiet.c"));
    let native = run.clone().native().no_driver().output().ok();
    assert_eq!(native.stdout, run.no_driver().output().ok().stdout);

    let peak = |run: Run| run.output().ok().stdout.trim().parse::<u64>().expect("a number of kB");
    let run = Run::c("address_space.c");
    let (native, ours) = (peak(run.clone().native()), peak(run));
    assert!(ours < native + (96 << 10), "{native} kB without the library, {ours} kB with it");
}

/// The tables of many blocks take megabytes at once, which the host may not have. Rust aborts the
/// process when such an allocation fails.
#[test]
fn little_host_memory_is_survived() {
    let chunk = "strategy:pre_allocate,initial_gpu_memory_in_mb:64";
    // The simulation's own thread would then have no memory for its thread-local data.
    let run = Run::c("host_memory.c").conf(chunk).env("SIM_IDLE_MS", "60000");
    let run = run.env("SIM_MEMORY_MB", "64");
    let ran = run.output().ok();
    assert_eq!(ran.stdout, "some, then 100000\n");
    // The out-of-memory report allocates as well.
    assert!(ran.stderr.contains("out of memory"), "{}", ran.stderr);
}

/// The library looks at what holds the memory at each failed request, without recording too. That
/// must not use up the reserve.
#[test]
fn failures_of_many_threads_without_host_memory_are_survived() {
    let run = Run::c("host_memory.c").arg("threads").env("SIM_IDLE_MS", "60000");
    assert_eq!(run.output().ok().stdout, "400 threads failed\n");
}

/// The kernel reclaims no locked page, so a table is never zero again (hazard 61).
#[test]
fn locked_memory_is_survived() {
    let run = Run::c("locked.c");
    let (native, ours) = (run.clone().native().output().ok(), run.output().ok());
    if !native.stdout.starts_with("locked: 1") {
        return skipped("this process may not lock its memory");
    }
    assert_eq!((native.stdout, ""), (ours.stdout, ours.stderr.as_str()));
}

/// Driver 11.4 has neither context ids nor the context-wide barrier; before 12.5 only the barrier
/// is missing.
#[test]
fn old_drivers_work() {
    for version in [11_040, 12_000, 12_040, 12_050, 12_080, 13_000] {
        let run = Run::c("use.c").driver(driver_of_version(version));
        let ran = run.env("SIM_DRIVER_VERSION", version.to_string()).output().ok();
        assert_eq!(ran.stdout, "served by libcachealloc.so\n", "{version}");
        assert_eq!(ran.stderr, "", "{version}");
        assert_eq!(ran.report.races(), 0, "{version}");
    }
}

#[test]
fn a_library_that_is_not_there_is_only_a_warning() {
    let missing = library().with_file_name("libnowhere.so");
    let ran = Run::c("use.c").preload(&[missing, library()]).output().ok();
    assert_eq!(ran.stdout, "served by libcachealloc.so\n");
}

/// The library's messages must neither end the program by SIGPIPE nor land in the file that gets
/// descriptor 2.
#[test]
fn program_without_stderr_is_unaffected() {
    let bad = "free_mode:strit,stats_on_exit:stderr";
    let pipe = Run::c("broken_stderr.c").arg("pipe").conf(bad).output().ok();
    assert!(pipe.stdout.ends_with(", 4 bytes\n"), "{}", pipe.stdout);
    let closed = Run::c("broken_stderr.c").arg("closed").conf(bad).output().ok();
    assert_eq!(closed.stdout, "descriptor 2, 4 bytes\n");
}

/// A message from a background process must not stop the program.
#[test]
fn terminal_never_stops_the_program_for_messages() {
    let native = Run::c("background.c").native().output().ok();
    let ours = Run::c("background.c").output().ok();
    assert_eq!(native.stdout, "ended with 3\n");
    assert_eq!(ours.stdout, native.stdout);
    assert!(ours.stderr.contains("out of memory"), "{}", ours.stderr);
}

/// A message that the reader does not take is lost. It delays nothing for long, least of all the
/// exit.
#[test]
fn unread_pipe_does_not_block_the_program() {
    for way in ["return", "raise", "shortage"] {
        let run = Run::c("full_pipe.c").arg(way);
        let native = run.clone().native().output().ok();
        for conf in ["record:all,snapshot:/dev/null", "record:off,stats_on_exit:stderr"] {
            let ours = run.clone().conf(conf).output().ok();
            assert_eq!(native.stdout, ours.stdout, "{way}, {conf}: {}", ours.stderr);
        }
    }
}

/// A file that happens to get descriptor 2 holds the program's data. A stream that the program
/// itself puts there is for messages.
#[test]
fn a_file_that_gets_number_2_keeps_its_data() {
    for when in ["early", "late"] {
        let run = |how: &str| Run::c("descriptor_2.c").arg(when).arg(how).output().ok();
        let ran = run("chance");
        assert_eq!((&*ran.stdout, &*ran.stderr), ("its own data\n", ""), "{when}");
        for how in ["dup2", "dup3", "freopen", "daemon"] {
            let ran = run(how);
            assert_eq!((&*ran.stdout, &*ran.stderr), ("and messages\n", ""), "{when} {how}");
        }
        let ran = run("vfork");
        assert!(ran.stderr.contains("out of memory"), "{when}: {}", ran.stderr);
    }
}
