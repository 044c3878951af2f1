//! The exported `dlsym`: every look-up of a process under the library goes through it, and must
//! give the same result as without the library.

use std::path::PathBuf;

use cachealloc_tests::{
    Ran, Run, compile, compile_library, driver_folder, lacks, library, skipped,
};

/// Checks that the program has the same output and exit code with and without the library.
#[track_caller]
fn same(run: &Run) -> Ran {
    let native = run.clone().native().output();
    let ours = run.output();
    assert_eq!(native.stdout, ours.stdout, "without the library: {native:#?}\nunder it: {ours:#?}");
    assert_eq!(native.code, ours.code);
    assert_eq!(native.stderr, ours.stderr);
    ours
}

/// cudart is linked against `dlsym@GLIBC_2.2.5`, new programs against `@GLIBC_2.34`. The library
/// must not export `dlopen`: NVIDIA's profilers mistake a library that exports it for their own.
#[test]
fn both_symbol_versions_resolve_to_the_library() {
    let ran = Run::c("versions.c").output().ok();
    for (name, place) in
        [("dlsym", "libcachealloc.so"), ("dlopen", "libc.so.6"), ("dlmopen", "libc.so.6")]
    {
        let line = format!("{name}: new in {place}, old in {place}\n");
        assert!(ran.stdout.contains(&line), "{}", ran.stdout);
    }
}

fn plugin() -> PathBuf {
    let below = compile_library("scope_below.c", "plugins/libscope_below.so", &[]);
    let below = below.display().to_string();
    compile_library(
        "scope_plugin.c",
        "plugins/libscope_plugin.so",
        &["-Wl,--no-as-needed", "-ldl", &below],
    )
}

/// What `RTLD_NEXT`, `RTLD_DEFAULT` and the text of `dlerror` mean depends on the caller.
#[test]
fn local_plugin_resolves_as_without_the_library() {
    let run = Run::c("scope.c").no_driver().arg(plugin());
    let ran = same(&run).ok();
    assert!(ran.stdout.starts_with("next 2 22\ndefault 5 55\n"), "{}", ran.stdout);
}

/// A plugin that is linked against the driver and opened with RTLD_LOCAL sees the driver; the
/// program itself does not.
#[test]
fn local_plugin_linked_with_the_driver_resolves_to_the_library() {
    let below = compile_library("scope_below.c", "plugins/libscope_below.so", &[]);
    let below = below.display().to_string();
    let driver = driver_folder().join("libcuda.so.1").display().to_string();
    let flags = ["-Wl,--no-as-needed", "-ldl", below.as_str(), driver.as_str()];
    let plugin = compile_library("scope_plugin.c", "plugins/libscope_cuda_plugin.so", &flags);
    let run = Run::c("scope.c").arg(plugin);
    let native = run.clone().native().output().ok().stdout;
    assert!(native.contains("driver libcuda.so.1 libcuda.so.1"), "{native}");
    let ours = run.output().ok().stdout;
    assert_eq!(
        native.replace(
            "driver libcuda.so.1 libcuda.so.1",
            "driver libcachealloc.so libcachealloc.so"
        ),
        ours
    );
    assert!(ours.ends_with("main nowhere\n"), "{ours}");
}

/// The search path of a library that is named without a folder depends on the caller of `dlopen`:
/// an interposed `dlopen` that calls the real one would be the wrong caller.
#[test]
fn a_library_is_looked_for_where_its_opener_says() {
    compile_library("scope_below.c", "plugins/libbeside.so", &[]);
    let opener = compile_library("opener_plugin.c", "plugins/libopener.so", &["-ldl"]);
    let ran = same(&Run::c("opener.c").no_driver().arg(opener)).ok();
    assert!(ran.stdout.starts_with("program: libbeside.so: cannot open"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\nlibbeside.so: found\n"), "{}", ran.stdout);
}

/// The loader's lock is held while a constructor runs. An interposed function must not wait for
/// that lock while it keeps others waiting, and a forked child must not wait for a thread that it
/// does not have.
#[test]
fn a_constructor_calls_what_another_thread_calls_for_the_first_time() {
    let name = "plugins/libconstructor.so";
    let plugin = compile_library("constructor_plugin.c", name, &["-lpthread"]);
    for function in ["sigaction", "signal"] {
        for way in ["call", "fork"] {
            let run = Run::c("constructor.c").no_driver().arg(plugin.clone());
            let ran = same(&run.env("WAY", format!("{function}, then {way}"))).ok();
            assert_eq!(ran.stdout, "through\n", "{function} {way}");
        }
    }
}

#[test]
fn lookups_before_any_constructor_work() {
    let needed = compile_library("early_needed.c", "libearly_needed.so", &["-ldl"]);
    let early = Run::c("early.c").arg(needed.clone());
    let ran = early.output().ok();
    assert!(ran.stdout.starts_with("cuInit is in libcachealloc.so\n"), "{ran:?}");
    // `CACHEALLOC` cannot be read that early, and still takes effect later.
    same(&early.clone().env("CACHEALLOC", "0")).ok();
    same(&early.no_driver()).ok();
    // Preloaded after this library, the other library still runs its constructor first.
    let run = Run::c("early.c").arg(needed.clone()).preload(&[library(), needed]);
    run.output().ok();
    same(&Run::c("early.c").env("LD_BIND_NOW", "1").no_driver()).ok();
}

/// The library's exports are in the global scope of every process. A machine without CUDA must not
/// seem to have a driver.
#[test]
fn without_a_driver_the_global_scope_has_none() {
    let ran = Run::c("default_scope.c").no_driver().arg("none").output().ok();
    assert_eq!(ran.stdout, "nowhere error\nnowhere\n");
    same(&Run::c("default_scope.c").arg("none")).ok();
}

#[test]
fn a_local_driver_is_not_in_the_global_scope() {
    same(&Run::c("default_scope.c").arg("local")).ok();
}

#[test]
fn global_driver_resolves_to_the_library() {
    let ran = Run::c("default_scope.c").arg("global").output().ok();
    assert_eq!(ran.stdout, "libcachealloc.so no error\nlibcachealloc.so\n");
}

#[test]
fn threads_find_the_same_functions() {
    let ran = Run::c("many_threads.c").output().ok();
    assert_eq!(ran.stdout, "libcachealloc.so libcachealloc.so libcuda.so.1\n");
}

/// Memory allocators look functions up while they initialize themselves.
#[test]
fn other_allocators_can_be_preloaded() {
    let known =
        ["libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"];
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let places = folders.iter().flat_map(|f| known.map(|name| PathBuf::from(f).join(name)));
    let found: Vec<PathBuf> = places.filter(|path| path.exists()).collect();
    if found.is_empty() {
        skipped(&format!("none of {known:?} is installed"));
    }
    for other in found {
        for list in [[other.clone(), library()], [library(), other.clone()]] {
            let ran = Run::c("use.c").preload(&list).output().ok();
            assert_eq!(ran.stdout, "served by libcachealloc.so\n", "{list:?}");
            Run::c("many_threads.c").preload(&list).output().ok();
        }
    }
}

/// Every shell, script and tool that a CUDA program starts inherits the library.
#[test]
fn everyday_programs_do_the_same() {
    let python = "import ctypes, ssl, sqlite3, hashlib, json, subprocess\n\
                  print(ctypes.CDLL(None).getpid() > 0, sqlite3.connect(':memory:').execute('select 6*7').fetchone())\n\
                  print(subprocess.run(['sh', '-c', 'echo child'], capture_output=True).stdout)\n\
                  try: ctypes.CDLL(None).cuInit\n\
                  except AttributeError: print('no cuInit')";
    let programs: [(&str, &[&str]); 6] = [
        ("python3", &["-c", python]),
        (
            "bash",
            &["-c", "for i in 1 2 3; do echo $((i*i)); done; (exit 3); echo $?; echo x | cat"],
        ),
        (
            "perl",
            &[
                "-e",
                "use POSIX; use List::Util 'sum'; print floor(2.5), sum(1..9), \"\\n\"; system 'echo child'",
            ],
        ),
        ("git", &["--version"]),
        ("gcc", &["-v"]),
        ("awk", &["BEGIN { print 6 * 7; system(\"echo child\") }"]),
    ];
    for (program, arguments) in programs {
        let run = arguments.iter().fold(Run::program(program), |run, a| run.arg(*a));
        if lacks(program) {
            continue;
        }
        same(&run.clone().no_driver()).ok();
        same(&run.env("CACHEALLOC_CONF", "stats_on_exit:stderr")).ok();
    }
}

/// The loader prints its own warning once for each program started in another folder, and nothing
/// else happens.
#[test]
fn a_relative_path_in_another_folder_is_only_a_warning() {
    let program = compile("quiet.c");
    let run =
        Run::program(program).folder("/").preload(&[PathBuf::from("target/libcachealloc.so")]);
    let ran = run.output().ok();
    assert!(ran.stderr.contains("cannot be preloaded"), "{}", ran.stderr);
}
