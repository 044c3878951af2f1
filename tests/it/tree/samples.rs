//! The samples of `samples/` run under the library and without it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use cachealloc_tests::{Run, lacks, root, target_folder};

use crate::record::snapshots::Place;

/// A file that `make samples` makes.
pub fn built(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let script = root().join("scripts/samples.sh");
        let target = target_folder();
        let output = Command::new(script).env("CARGO_TARGET_DIR", &target).output();
        let output = output.expect("the script runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join("samples")
    });
    folder.join(name)
}

fn python(script: &str) -> Run {
    Run::program("python3").arg(root().join("samples").join(script))
}

/// The samples in C, Rust and Python make the same queries and get the same answers.
#[test]
fn samples_agree_in_every_language() {
    if lacks("python3") {
        return;
    }
    let programs = [
        Run::program(built("04-interface")),
        Run::program(built("06-interface")),
        python("05-interface.py"),
    ];
    for program in programs {
        let place = Place::new();
        let ran = place.run(&program.clone().native()).ok();
        assert_eq!(ran.stdout, "cachealloc is not here\n");
        let ran = place.run(&program).ok();
        let said: Vec<_> = ran.stdout.lines().collect();
        assert_eq!(said[0], concat!("cachealloc ", env!("CARGO_PKG_VERSION")));
        assert!(said.contains(&"snapshot: interface.pickle"), "{said:?}");
        assert!(said.last().is_some_and(|line| line.ends_with("0 MiB released")), "{said:?}");
        place.sound(1..=1, &["--opcodes"]);
    }
    let ran = Place::new().run(&Run::program(built("04-interface"))).ok();
    assert!(
        ran.stdout.contains("300 MiB from the cache, 30 MiB from the driver"),
        "{}",
        ran.stdout
    );
}

/// The program's own error does not show the reason; the report does.
#[test]
fn a_program_that_runs_out_of_memory_is_explained() {
    let sample = Run::program(built("07-out-of-memory"));
    let place = Place::new();
    let ran = place.run(&sample.conf("record:all,gpu_memory_limit_mb:256"));
    assert_eq!((ran.code, &*ran.stdout), (Some(1), "CUDA error 2\n"), "{ran:#?}");
    let [asked, held] = ["asked by", "held by"].map(|part| ran.stderr.find(part).expect(part));
    let forward: Vec<_> = ran.stderr.match_indices(" forward ").map(|(at, _)| at).collect();
    assert!(matches!(forward[..], [first, second] if first > asked && second > held), "{ran:#?}");
    assert!(ran.stderr.contains("160 MiB in 8 blocks"), "{ran:#?}");
}

fn hooked(name: &str) -> Run {
    Run::program(built("04-interface")).conf(&format!("hook:{}", built(name).display()))
}

#[test]
fn a_hook_prints_every_call() {
    let ran = Place::new().run(&hooked("debug_print.so")).ok();
    let count = |what: &str| ran.stderr.lines().filter(|line| line.contains(what)).count();
    let mallocs =
        r#"{"hook":"malloc","device_id":0,"size":31457280,"mem_size":31457280,"mem_ptr":"#;
    assert_eq!(count(mallocs), 20, "{}", ran.stderr);
    assert_eq!(count(r#"{"hook":"free","device_id":0,"mem_size":31457280,"mem_ptr":"#), 20);
    assert_eq!(count(r#"{"hook":"alloc","device_id":0,"mem_size":31457280,"mem_ptr":"#), 1);
}

/// The program takes 300 MiB twice in one function, all of it called by `main`.
#[test]
fn a_hook_says_which_lines_take_memory() {
    let ran = Place::new().run(&hooked("line_profile.so")).ok();
    let line = ran.stderr.lines().find(|line| line.contains("04-interface+")).expect(&ran.stderr);
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[1], "MiB", "{line}");
    let used: u32 = words[0].parse().expect("a number");
    assert!(used == 300 || used == 600, "{}", ran.stderr);
    assert!(!ran.stderr.contains("libcachealloc"), "{}", ran.stderr);
}

#[test]
fn a_hook_may_be_written_in_python() {
    if lacks("python3") {
        return;
    }
    let script = "hooks/memory_hook.py";
    let ran = python(script).output().ok();
    assert_eq!(
        ran.stdout,
        "alloc  2097152\nmalloc 1000 1024\nfree   1024\nmalloc 5000 5120\nfree   5120\n"
    );
    assert_eq!(python(script).native().output().ok().stdout, "");
}

/// Python prints the exception, and the program continues.
#[test]
fn a_hook_in_python_may_raise() {
    if lacks("python3") {
        return;
    }
    let code = "import memory_hook as m, runpy\n\
        def fails(self, **_): raise ValueError('no')\n\
        m.Prints.malloc_preprocess = fails\n\
        m.main()\n";
    let folder = root().join("samples/hooks");
    let ran = Run::program("python3").arg("-Bc").arg(code).folder(folder).output().ok();
    assert_eq!(ran.stdout.lines().count(), 5, "{ran:#?}");
    assert_eq!(ran.stderr.matches("ValueError: no").count(), 2, "{ran:#?}");
    assert!(!ran.stderr.contains("is removed"), "{}", ran.stderr);
}
