//! `cachealloc run`: the program has the terminal, its signals and its exit code to itself.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use cachealloc_options::OPTIONS;
use cachealloc_tests::{Run, command, compile, compile_library, lacks, library, link};

use super::{cachealloc, under};
use crate::record::snapshots::{Place, trigger};

fn shell(flags: &str, script: &str) -> Run {
    cachealloc(&format!("run {flags} -- sh -c")).arg(script)
}

#[test]
fn the_program_takes_the_place_of_the_command() {
    let ran = shell("", "echo out; echo err >&2; exit 7").output();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), ("out\n", "err\n", Some(7)));
    assert_eq!(shell("", "kill -TERM $$").output().code, Some(143));
    let mut child = shell("", "echo $$").plain_command();
    let child = child.stdout(Stdio::piped()).spawn().expect("it starts");
    let process = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{process}\n"));
}

#[test]
fn the_library_is_in_front_and_flags_count_more() {
    let print = "printf '%s\\n' \"$LD_PRELOAD\" \"$CACHEALLOC_CONF\"";
    let library = library().display().to_string();
    let ran = shell("", print).output().ok();
    assert_eq!(ran.stdout, format!("{library}\n\n"));
    // The library comes before other preloaded libraries, and only once.
    let other = compile_library("scope_below.c", "plugins/libbeside.so", &[]);
    for before in [format!("{}", other.display()), format!("{}:{library}", other.display())] {
        let ran = shell("--free-mode strict --only=[a,b]", print)
            .preload(&[before.into()])
            .conf("free_mode:relaxed,log:info,")
            .output();
        let settings = "free_mode:relaxed,log:info,free_mode:strict,only:[a,b]";
        assert_eq!(ran.stdout, format!("{library}:{}\n{settings}\n", other.display()), "{ran:#?}");
    }
}

/// The settings reach the library, as its own output shows.
#[test]
fn a_program_runs_under_the_library() {
    let ran = under("--stats-on-exit stderr", compile("statistics.c"), "api").output().ok();
    assert!(ran.stderr.contains("allocations served"), "{}", ran.stderr);
    let strict = "--free-mode strict --waits-on-exit stderr";
    let ran = under(strict, env!("CARGO_BIN_EXE_hello"), "").output().ok();
    assert!(ran.stderr.contains("free: mode strict"), "{}", ran.stderr);
}

/// Installed, the library lies in `lib` next to `bin`; `--lib` and the variable take precedence.
#[test]
fn the_library_is_found() {
    let place = Place::new();
    let (bin, lib) = (place.path.join("bin"), place.path.join("lib"));
    fs::create_dir_all(&bin).expect("target/ is writable");
    fs::copy(command(), bin.join("cachealloc")).expect("target/ is writable");
    let installed = |flags: &str| {
        let run = Run::program(bin.join("cachealloc")).native().args("run").args(flags);
        run.args("-- sh -c").arg("echo $LD_PRELOAD")
    };
    let ran = installed("").output();
    assert_eq!(ran.code, Some(125));
    let said = "is neither in";
    assert!(ran.stderr.contains(said) && ran.stderr.contains("--lib or CACHEALLOC_LIB"), "{ran:?}");
    for found in [
        installed(&format!("--lib {}", library().display())),
        installed(&format!("--lib {}", library().parent().unwrap().display())),
        installed("").env("CACHEALLOC_LIB", library()),
    ] {
        assert_eq!(found.output().ok().stdout, format!("{}\n", library().display()));
    }
    link(&lib, "libcachealloc.so", &library());
    assert_eq!(installed("").output().ok().stdout, format!("{}\n", library().display()));
}

/// Installed by pip, the library lies in the package of a Python of the same prefix, or next to
/// `bin` with `--target`. A package of another version has another library.
#[test]
fn the_library_is_found_where_pip_puts_it() {
    for packages in ["lib/python3.9/site-packages", "lib64/python3.12/dist-packages", ""] {
        let place = Place::new();
        let packages = place.path.join(packages);
        let (bin, package) = (place.path.join("bin"), packages.join("cachealloc"));
        fs::create_dir_all(&bin).expect("target/ is writable");
        fs::hard_link(command(), bin.join("cachealloc")).expect("target/ is one file system");
        link(&package, "libcachealloc.so", &library());
        let run = Run::program(bin.join("cachealloc")).native().args("run -- sh -c");
        let run = run.arg("echo $LD_PRELOAD");
        fs::create_dir(packages.join("cachealloc-0.0.1.dist-info")).expect("target/ is writable");
        assert_eq!(run.output().code, Some(125), "{}", packages.display());
        let record = concat!("cachealloc-", env!("CARGO_PKG_VERSION"), ".dist-info");
        fs::create_dir(packages.join(record)).expect("target/ is writable");
        assert_eq!(run.output().ok().stdout, format!("{}\n", library().display()));
    }
}

#[test]
fn every_option_is_a_flag() {
    let mut flags = String::new();
    for row in OPTIONS {
        let value = if row.key == "hook" { "/no/hook.so" } else { row.default };
        flags += &format!("--{}={value} ", row.key.replace('_', "-"));
    }
    let ran = shell(&flags, "echo $CACHEALLOC_CONF").output();
    for row in OPTIONS {
        assert!(ran.stdout.contains(&format!("{}:", row.key)), "{}: {ran:?}", row.key);
    }
    let help = cachealloc("run --help").output().ok().stdout;
    let alone = "--record --expandable-segments --free_mode strict";
    let ran = shell(alone, "echo $CACHEALLOC_CONF").output().ok();
    assert_eq!(ran.stdout, "free_mode:strict,expandable_segments:true,record:all\n");
    assert!(help.contains("--expandable-segments[=<BOOLEAN>]"), "{help}");
    assert!(help.contains("[possible values: ordered, strict, relaxed]"), "{help}");
}

/// A program never starts with settings that it would not get.
#[test]
fn bad_settings_are_refused() {
    for (flags, wanted) in [
        ("--free-mode odered", "invalid free_mode 'odered': expected ordered, strict or relaxed"),
        (
            "--max-split-size-mb 5",
            "invalid max_split_size_mb '5': expected a whole number, at least \
             large_segment_size_mb, or unlimited",
        ),
        (
            "--snapshot a,b",
            "invalid --snapshot \"a,b\"; write it without spaces, and with commas only within []",
        ),
        (
            "--report /no/such/a.html",
            "the folder /no/such does not exist; create it, or choose another file with --report",
        ),
        (
            "--report a.html --snapshot b-%n",
            "cannot use --report with --snapshot: --report names its snapshots itself; record \
             with --record --snapshot, then run: cachealloc report",
        ),
    ] {
        let ran = shell(flags, "echo started").output();
        assert_eq!(ran.stderr, format!("cachealloc: {wanted}\n"));
        assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(2)), "{flags}");
    }
    // Without an equals sign the value is taken for a program, and there are programs of these names.
    for (flags, word, flag) in [
        ("--expandable-segments true", "true", "--expandable-segments=true"),
        ("--cache false", "false", "--cache=false"),
        ("--record all", "all", "--record=all"),
    ] {
        let ran = shell(flags, "echo started").output();
        let wanted =
            format!("{word:?} would be the program; write a flag and its value as: {flag}");
        assert_eq!((ran.stderr, ran.code), (format!("cachealloc: {wanted}\n"), Some(2)));
    }
    let ran = shell("--free-moed strict", "echo started").output();
    assert!(ran.stderr.contains("--free-mode") && ran.code == Some(2), "{ran:?}");
    let ran = shell("--log info", "echo started").conf("only:[a").output();
    assert!(ran.stderr.contains("has an unclosed [") && ran.code == Some(2), "{ran:?}");
    // The library itself judges settings that were made before, and continues with a default.
    shell("--log info", "true").conf("free_mode:odered").output().ok();
}

#[test]
fn disabled_library_is_reported() {
    let ran = shell("", "true").env("CACHEALLOC", "0").output().ok();
    assert_eq!(ran.stderr, "cachealloc: CACHEALLOC=0 is set: the library is disabled\n");
}

/// A line for each variable that has a meaning but is not taken over, and none for those that are
/// ignored on purpose or when messages are off.
#[test]
fn variables_of_other_allocators_are_reported() {
    let run = |flags: &str| {
        let variable = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,backend:native");
        shell(flags, "echo out").env(variable.0, variable.1).output().ok()
    };
    let said = run("");
    let line = "cachealloc: PYTORCH_CUDA_ALLOC_CONF belongs to PyTorch and is ignored; in CACHEALLOC_CONF \
                expandable_segments:True is equivalent, backend:native has no effect\n";
    assert_eq!((&*said.stdout, &*said.stderr), ("out\n", line));
    for flags in ["--expandable-segments", "--log quiet"] {
        let ran = run(flags);
        assert_eq!((&*ran.stdout, &*ran.stderr), ("out\n", ""), "{flags}");
    }
}

/// Sets only the frameworks' own variables, keeps those that the user has set, and mentions only
/// frameworks that are installed.
#[test]
fn caches_of_frameworks_are_turned_off() {
    let print = "env | grep -E '^(PYTORCH|XLA|TF_GPU|FLAGS)_' | sort";
    assert_eq!(shell("", print).output().stdout, "");
    let ran = shell("--uncached", print).env("TF_GPU_ALLOCATOR", "bfc").output().ok();
    let set = "FLAGS_use_system_allocator=1\nPYTORCH_NO_CUDA_MEMORY_CACHING=1\nTF_GPU_ALLOCATOR=bfc\n\
               XLA_PYTHON_CLIENT_ALLOCATOR=platform\nXLA_PYTHON_CLIENT_PREALLOCATE=false\n";
    assert_eq!(ran.stdout, set);
    let lines = |lines: &[&str]| {
        lines.iter().map(|line| format!("cachealloc: --uncached {line}\n")).collect::<String>()
    };
    let keeps = "keeps TF_GPU_ALLOCATOR=bfc (TensorFlow)";
    let none = "sets the switches of frameworks, but found none of them";
    assert_eq!(ran.stderr, lines(&[keeps, none]));
    // An environment of Python, with a shell in place of the interpreter.
    let place = Place::new();
    for package in ["torch", "jaxlib", "cupy"] {
        let packages = place.path.join("venv/lib/python3.12/site-packages");
        fs::create_dir_all(packages.join(package)).expect("target/ is writable");
    }
    fs::create_dir(place.path.join("venv/bin")).expect("target/ is writable");
    let python = place.path.join("venv/bin/python3");
    std::os::unix::fs::symlink("/bin/sh", &python).expect("target/ is writable");
    let run = cachealloc(&format!("run --uncached -- {} -c", python.display())).arg(print);
    let ran = run.env("TF_GPU_ALLOCATOR", "bfc").env("HOME", "/nowhere").output().ok();
    assert_eq!(ran.stdout, set);
    let sets = "sets PYTORCH_NO_CUDA_MEMORY_CACHING=1 (PyTorch), \
                XLA_PYTHON_CLIENT_PREALLOCATE=false (JAX), XLA_PYTHON_CLIENT_ALLOCATOR=platform (JAX)";
    let by_hand =
        "cannot disable the cache of CuPy: call cupy.cuda.set_allocator(None) in the program";
    assert_eq!(ran.stderr, lines(&[keeps, sets, by_hand]));
}

#[test]
fn a_report_follows_and_the_end_is_the_programs() {
    let place = Place::new();
    let program = compile("triggers.c");
    for (way, rank, name) in [("return", None, "a.html"), ("_exit", Some("3"), "a-3.html")] {
        let native = place.run(&trigger(way).native());
        let kept = name.replace(".html", ".pickle");
        let mut run = under("--report a.html", &program, way);
        if let Some(rank) = rank {
            run = run.env("OMPI_COMM_WORLD_RANK", rank);
        }
        let ran = place.run(&run);
        assert_eq!((&ran.stdout, ran.code), (&native.stdout, native.code), "{ran:#?}");
        assert!(
            ran.stderr.ends_with(&format!(
                "cachealloc: report: {name}\ncachealloc: snapshot: {kept}\n\
                 cachealloc: next: cachealloc findings {kept}\n\
                 cachealloc:       cachealloc top-sites {kept}\n"
            )),
            "{ran:#?}"
        );
        let text = fs::read_to_string(place.path.join(name)).expect("the report");
        assert!(text.contains("<html") && text.len() > 1000, "{name}");
    }
    // Nothing else is left, here or where the snapshots were.
    assert_eq!(place.names(), ["a-3.html", "a-3.pickle", "a.html", "a.pickle"]);
    // A snapshot is never lost to another run.
    place.run(&under("--report a.html", &program, "return"));
    assert_eq!(place.names(), ["a-1.pickle", "a-3.html", "a-3.pickle", "a.html", "a.pickle"]);
    let ran = place.run(&under("--report b.html --no-keep", &program, "return"));
    assert!(ran.stderr.ends_with("cachealloc: removed the snapshot\n"), "{ran:#?}");
    assert!(!place.names().contains(&"b.pickle".to_string()));
}

#[test]
fn a_full_stderr_changes_no_end() {
    let place = Place::new();
    let (command, program) = (command().display().to_string(), compile("triggers.c"));
    let script =
        format!("{command} run --report a.html -- {} return 2>/dev/full", program.display());
    let ran = place.run(&Run::program("/bin/sh").native().arg("-c").arg(script));
    assert_eq!(ran.code, place.run(&trigger("return").native()).code, "{ran:#?}");
    assert_eq!(place.names(), ["a.html", "a.pickle"]);
    let ran = place.run(
        &Run::program("/bin/sh")
            .native()
            .env("CACHEALLOC", "0")
            .arg("-c")
            .arg(format!("{command} run -- sh -c 'exit 7' 2>/dev/full")),
    );
    assert_eq!(ran.code, Some(7));
}

#[test]
fn without_snapshots_there_is_no_report() {
    let place = Place::new();
    for (script, code, why) in [
        ("exit 9", 9, "the program left no snapshot"),
        ("kill -SEGV $$", 139, "SIGSEGV ended the program"),
        ("kill -PIPE $$", 141, "SIGPIPE ended the program"),
    ] {
        let ran = place.run(&shell("--report a.html", script).env("TMPDIR", &place.path));
        assert!(ran.stderr.contains(&format!("no report: {why}; ")), "{ran:#?}");
        assert_eq!(ran.code, Some(code), "{script}");
    }
    assert_eq!(place.names(), [""; 0]);
}

/// However the program ends, its history is there, and its exit status is its own.
#[test]
fn a_killed_program_is_reported() {
    for (signal, code) in [("KILL", 137), ("SEGV", 139)] {
        let place = Place::new();
        let run = cachealloc("run --report a.html --").arg(compile("killed_after.c")).arg(signal);
        let ran = place.run(&run);
        assert_eq!(ran.code, Some(code), "{ran:#?}");
        assert!(ran.stderr.contains("recovered its history"), "{ran:#?}");
        assert!(ran.stderr.contains("report: a.html"), "{ran:#?}");
        assert_eq!(place.names(), ["a.html", "a.pickle"], "{ran:#?}");
        let found = place.run(&cachealloc("findings a.pickle")).ok();
        assert!(found.stdout.contains("50.0 MiB live"), "{found:#?}");
    }
}

/// The command passes on the signals that it receives, and ends by the same signal as the program.
#[test]
fn signals_are_for_the_program() {
    let place = Place::new();
    for (script, code, signal) in [
        ("trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done", Some(5), None),
        ("echo ready; exec sleep 60", None, Some(15)),
    ] {
        let run = shell("--report a.html", script).folder(&place.path);
        let mut child =
            run.plain_command().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).expect("it runs");
        let kill = std::process::Command::new("kill").arg(child.id().to_string()).status();
        assert!(kill.expect("kill").success());
        let status = child.wait().expect("it ends");
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
}

#[test]
fn ranks_leave_snapshots_of_their_own() {
    let place = Place::new();
    for rank in ["0", "1"] {
        let run = under("--record --snapshot r%r.pickle", compile("triggers.c"), "return");
        assert_eq!(place.run(&run.env("PMI_RANK", rank)).code, Some(3));
    }
    assert_eq!(place.names(), ["r0.pickle", "r1.pickle"]);
}

/// A signal that the caller ignores is ignored in the program, and a descriptor that it has closed
/// is closed there, whatever the standard library does in the command.
#[test]
fn a_program_begins_as_the_command_did() {
    let place = Place::new();
    let look = "grep SigIgn /proc/$$/status; for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n; done; true";
    for (before, closed) in [("trap '' PIPE", "<&-"), ("true", "2>&-"), ("trap '' PIPE", "")] {
        let begun = |how: &str| {
            let script = format!("{before}; exec {how} sh -c '{look}' {closed}");
            place.run(&Run::program("/bin/sh").native().arg("-c").arg(script)).ok().stdout
        };
        let native = begun("");
        for flags in ["", "--report a.html"] {
            let command = command().display().to_string();
            assert_eq!(begun(&format!("{command} run {flags} --")), native, "{before}, {closed}");
        }
    }
}

/// Foreign files in the place of the snapshots, or of possible ones, are not removed.
#[test]
fn files_of_others_are_not_removed() {
    let place = Place::new();
    let report = format!("{} run --report a.html --", command().display());
    // The running process, and one that was before it, have the same number in two namespaces.
    let script = format!(
        "mkdir -p $TMPDIR/cachealloc-$$; echo kept >$TMPDIR/cachealloc-$$/kept.pickle; echo $$; \
         exec {report} {} return",
        compile("triggers.c").display()
    );
    let temporary = place.path.join("tmp");
    fs::create_dir(&temporary).expect("target/ is writable");
    let run = Run::program("/bin/sh").native().env("TMPDIR", fs::canonicalize(&temporary).unwrap());
    let ran = place.run(&run.arg("-c").arg(script));
    let kept =
        temporary.join(format!("cachealloc-{}/kept.pickle", ran.stdout.lines().next().unwrap()));
    assert_eq!(fs::read_to_string(kept).ok().as_deref(), Some("kept\n"), "{ran:#?}");
    assert_eq!(
        fs::read_dir(&temporary).expect("the folder").count(),
        1,
        "only the command's own folder is removed"
    );
    // A program that does not start leaves nothing, and foreign files that are no snapshots stay.
    let ran = place.run(
        &cachealloc("run --report a.html --force --").arg("/etc/passwd").env("TMPDIR", "/tmp"),
    );
    assert_eq!(ran.code, Some(126));
    let script = "for d in $TMPDIR/cachealloc-*; do echo mine >$d/mine; done; exit 0";
    let run = shell("--report a.html", script).env("TMPDIR", fs::canonicalize(&temporary).unwrap());
    place.run(&run).ok();
    let mine = fs::read_dir(&temporary).expect("the folder").flatten();
    let mine = mine.filter(|folder| folder.path().join("mine").exists()).count();
    assert_eq!(mine, 2);
}

/// Counts the signals that arrive, and prints the count when its stdin ends.
const COUNTS: &str = r#"
import collections, os, signal, sys, time
counts = collections.Counter()
def count(number, frame):
    counts[signal.Signals(number).name] += 1
    os.write(1, b'.')
for name in ('SIGTERM', 'SIGHUP', 'SIGUSR2', 'SIGWINCH'):
    signal.signal(getattr(signal, name), count)
print('ready', flush=True)
sys.stdin.read()
time.sleep(0.1)
os.write(1, f'{sorted(counts.items())}\n'.encode())
"#;

/// A signal arrives once, whether it was sent to the command, to its group, or to the program.
#[test]
fn signal_arrives_once() {
    if lacks("python3") {
        return;
    }
    use std::io::Read as _;
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let run = cachealloc("run --report a.html -- python3 -c").arg(COUNTS).folder(&place.path);
    let mut command = run.plain_command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).expect("it runs");
    let id = child.id().to_string();
    let group = format!("-{id}");
    let mut sent = std::collections::BTreeMap::new();
    for round in 0..12 {
        for (number, name) in ["TERM", "HUP", "USR2", "WINCH"].into_iter().enumerate() {
            let whom = if (round + number) % 2 == 0 { &group } else { &id };
            let kill =
                std::process::Command::new("/bin/kill").args(["-s", name, "--", whom]).status();
            assert!(kill.expect("kill").success());
            *sent.entry(format!("SIG{name}")).or_insert(0) += 1;
            // The same signal sent twice at once would arrive once.
            let mut arrived = [0];
            stdout.read_exact(&mut arrived).expect("it arrives");
            wait_until_none_is_pending(child.id());
        }
    }
    drop(child.stdin.take());
    let mut said = String::new();
    stdout.read_to_string(&mut said).expect("it says how many");
    child.wait().expect("it ends");
    let wanted: Vec<_> = sent.iter().map(|(name, count)| format!("('{name}', {count})")).collect();
    assert_eq!(said.trim_start_matches('.'), format!("[{}]\n", wanted.join(", ")));
}

/// If the process has not run yet, the next signal with this number would arrive together with the
/// last one.
fn wait_until_none_is_pending(process: u32) {
    let is_pending = || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        let pending = |line: &str| {
            line.strip_prefix("ShdPnd:")
                .is_some_and(|set| set.trim().bytes().any(|digit| digit != b'0'))
        };
        status.expect("it runs").lines().any(pending)
    };
    while is_pending() {
        std::thread::yield_now();
    }
}
