//! `cachealloc doctor` reports every obstacle to using the library, and nothing that it did not
//! check.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cachealloc_tests::{Ran, Run, compile_library, driver_of_version, library};

use super::cachealloc;
use super::fit::build_of;
use super::fit::{build, change, replace};
use crate::record::snapshots::Place;

/// Returns the lines about one subject, without their column.
fn about(ran: &Ran, subject: &str) -> Vec<String> {
    let lines = ran.stdout.lines().filter_map(|line| {
        let (mark, rest) = line.split_once(' ')?;
        let (found, text) = rest.trim_start().split_once(' ')?;
        (found == subject).then(|| format!("{mark}: {}", text.trim_start()))
    });
    lines.collect()
}

#[track_caller]
fn examined(place: &Place, run: &Run, code: i32) -> Ran {
    let ran = place.run(run);
    assert_eq!((ran.stderr.as_str(), ran.code), ("", Some(code)), "{ran:#?}");
    ran
}

#[test]
fn sound_machine_has_no_problems() {
    let place = Place::new();
    let ran = examined(&place, &cachealloc("doctor"), 0);
    let version = env!("CARGO_PKG_VERSION");
    let wanted =
        format!("ok: {}: loads, version {version}, like this command", library().display());
    assert_eq!(about(&ran, "library"), [wanted]);
    assert!(about(&ran, "glibc")[0].ends_with(" here; the library needs 2.17"), "{ran:#?}");
    let driver = &about(&ran, "driver")[0];
    assert!(driver.starts_with("ok: ") && driver.contains("/libcuda.so.1: CUDA 1"), "{driver}");
    let devices = about(&ran, "GPU");
    assert!(devices[0].starts_with("ok: 0: Simulated device 0, "), "{devices:?}");
    assert!(devices[0].ends_with("0000:00:00.0"), "{devices:?}");
    assert!(ran.stdout.ends_with("no problems found\n"), "{ran:#?}");
    // The output fits on a screen.
    assert!(ran.stdout.lines().count() <= 24, "{ran:#?}");
}

#[test]
fn missing_or_broken_driver_is_reported() {
    let place = Place::new();
    let ran = examined(&place, &cachealloc("doctor").no_driver(), 1);
    assert!(about(&ran, "driver")[0].starts_with("NO: libcuda.so.1: "), "{ran:#?}");
    // An empty variable names no folder: the loader does not take the file in the current folder.
    fs::write(place.path.join("libcuda.so.1"), "text").expect("target/ is writable");
    let run = cachealloc("doctor").no_driver().env("LD_LIBRARY_PATH", "");
    let ran = examined(&place, &run, 1);
    assert!(about(&ran, "driver")[0].contains("No such file"), "{ran:#?}");
    let ran = examined(&place, &cachealloc("doctor").driver(&place.path), 1);
    assert!(about(&ran, "driver")[0].starts_with("NO: "), "{ran:#?}");
    // A driver that crashes, and one that has no device.
    let crashing = compile_library("driver_crashes.c", "crashing/libcuda.so.1", &[]);
    let ran = examined(&place, &cachealloc("doctor").driver(crashing.parent().unwrap()), 1);
    assert_eq!(
        about(&ran, "driver"),
        ["NO: libcuda.so.1: a process that loaded it was ended by SIGSEGV"]
    );
    let ran = examined(&place, &cachealloc("doctor").env("SIM_DEVICES", "0"), 1);
    assert!(about(&ran, "driver")[0].starts_with("NO: "), "{ran:#?}");
}

/// `missing.rs` tests each function alone.
#[test]
fn features_disabled_by_an_old_driver_are_listed() {
    let place = Place::new();
    let older = "it is older than CUDA 11.4";
    let (streams, barrier) = ("it lacks cuStreamGetId: ", "it lacks cuCtxRecordEvent: ");
    for (version, wanted) in [
        (11_030, vec![older, barrier, streams]),
        (11_040, vec![barrier, streams]),
        (11_080, vec![barrier, streams]),
        (12_000, vec![barrier]),
        (12_040, vec![barrier]),
        (12_050, vec![]),
        (13_000, vec![]),
    ] {
        let run = cachealloc("doctor").driver(driver_of_version(version));
        let run = run.env("SIM_DRIVER_VERSION", version.to_string());
        let ran = examined(&place, &run, 0);
        let driver = about(&ran, "driver");
        let cuda = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
        assert!(driver[0].ends_with(&cuda), "{driver:#?}");
        assert_eq!(driver.len(), 1 + wanted.len(), "{version}: {driver:#?}");
        for (line, wanted) in driver[1..].iter().zip(wanted) {
            assert!(line.starts_with(&format!("note: {wanted}")), "{version}: {driver:#?}");
        }
        assert!(ran.stdout.lines().count() <= 24, "{ran:#?}");
    }
}

#[test]
fn unloadable_library_is_reported() {
    let place = Place::new();
    let newer = place.path.join("newer.so");
    change(&library(), &newer, |bytes| replace(bytes, b"GLIBC_2.17\0", b"GLIBC_9.17\0"));
    let ran = examined(&place, &cachealloc("doctor --lib newer.so"), 1);
    assert!(about(&ran, "library")[0].starts_with("NO: "), "{ran:#?}");
    assert!(about(&ran, "glibc")[0].contains(" here, and the library needs 9.17"), "{ran:#?}");
    let ran = examined(&place, &cachealloc("doctor --lib no.so"), 1);
    let why =
        "NO: the library no.so does not exist; name libcachealloc.so with --lib or CACHEALLOC_LIB";
    assert_eq!(about(&ran, "library"), [why]);
    assert_eq!(about(&ran, "glibc"), [""; 0]);
    let other = place.path.join("other.so");
    let version = env!("CARGO_PKG_VERSION");
    let (old, new) = (format!("{version}\0"), "9.9.9\0");
    change(&library(), &other, |bytes| replace(bytes, old.as_bytes(), new.as_bytes()));
    let ran = examined(&place, &cachealloc("doctor --lib other.so"), 0);
    let why = format!(
        "version 9.9.9, but this command is version {version}: install both from one package"
    );
    assert!(about(&ran, "library")[0].ends_with(&why), "{ran:#?}");
}

#[test]
fn program_is_examined_without_starting_it() {
    let place = Place::new();
    build(&place, "plain", &[]);
    build(&place, "static", &["-static"]);
    let script = |name: &str, text: &str| {
        let path = place.path.join(name);
        fs::write(&path, text).expect("target/ is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our file");
    };
    let here = place.path.display().to_string();
    script("runs.sh", &format!("#!{here}/plain\n"));
    script("stuck.sh", &format!("#!{here}/static\n"));
    script("writes.sh", "#!/bin/sh\ntouch started\n");
    fs::write(place.path.join("data"), "1").expect("target/ is writable");
    let none = "nothing prevents loading the library";
    for (program, code, wanted) in [
        ("./plain", 0, format!("ok: ./plain: {none}")),
        ("./runs.sh", 0, format!("ok: {here}/plain (which runs ./runs.sh): {none}")),
        ("./writes.sh", 0, format!("ok: /bin/sh (which runs ./writes.sh): {none}")),
        (
            "./stuck.sh",
            1,
            format!(
                "NO: {here}/static is linked statically: the library cannot be preloaded; link it \
                 without -static (a static CUDA runtime is fine)"
            ),
        ),
        (
            "./data",
            1,
            "NO: ./data is not executable; make it executable with: chmod +x ./data".to_string(),
        ),
        ("./no", 1, "NO: ./no does not exist; check the path".to_string()),
    ] {
        let ran = examined(&place, &cachealloc("doctor --").arg(program).args("-x 1"), code);
        assert_eq!(about(&ran, "program"), [wanted]);
    }
    assert!(!place.path.join("started").exists());
}

/// Libraries opened this way bypass the library, and nothing shows it while the program runs.
#[test]
#[cfg(target_arch = "x86_64")]
fn programs_that_use_deepbind_are_named() {
    let place = Place::new();
    let text = "#include <dlfcn.h>\nint opens(void) { return dlopen(\"none.so\", MODE) != 0; }\n";
    let folder = place.path.display().to_string();
    let (find, run_path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let links = [&find, "-Wl,--no-as-needed", "-ldeep", &run_path];
    for (mode, code, found) in [
        ("-DMODE=RTLD_NOW|RTLD_DEEPBIND", "-O2", true),
        ("-DMODE=RTLD_LAZY|RTLD_DEEPBIND|RTLD_GLOBAL", "-O0", true),
        ("-DMODE=RTLD_LAZY|RTLD_DEEPBIND", "-fno-plt", true),
        ("-DMODE=RTLD_NOW|RTLD_GLOBAL|RTLD_NODELETE", "-O2", false),
    ] {
        let flags = ["-shared", "-fPIC", "-D_GNU_SOURCE", mode, code, "-ldl"];
        build_of(&place, "libdeep.so", text, &flags);
        build(&place, "linked", &links);
        let ran = examined(&place, &cachealloc("doctor -- ./linked"), 0);
        let lines = about(&ran, "plugins");
        let begin = format!("note: {folder}/libdeep.so opens libraries with RTLD_DEEPBIND: ");
        assert_eq!(lines.len(), usize::from(found), "{mode} {code}: {ran:#?}");
        assert!(lines.iter().all(|line| line.starts_with(&begin)), "{ran:#?}");
    }
}

#[test]
fn surroundings_are_reported() {
    let place = Place::new();
    build(&place, "plain", &[]);
    let run = || cachealloc("doctor -- ./plain");
    let ran = examined(&place, &run().env("CACHEALLOC", "0"), 1);
    assert_eq!(
        about(&ran, "settings"),
        ["NO: CACHEALLOC=0 is set: the library is disabled; unset it"]
    );
    let ran = examined(&place, &run().conf("except:plain,record=all"), 1);
    assert_eq!(
        about(&ran, "settings"),
        [
            "note: CACHEALLOC_CONF: invalid option record=all: write record:all; ignored",
            "NO: `only` or `except` in CACHEALLOC_CONF excludes plain"
        ]
    );
    let ran = examined(&place, &run().conf("only:plain"), 0);
    assert_eq!(about(&ran, "settings"), [""; 0]);
    let ran = examined(&place, &run().env("PYTORCH_CUDA_ALLOC_CONF", "x:1"), 0);
    let why = "note: PYTORCH_CUDA_ALLOC_CONF belongs to PyTorch and is ignored; in CACHEALLOC_CONF x:1 is invalid";
    assert_eq!(about(&ran, "settings"), [why]);
    let ran = examined(&place, &run().env("NV_SANITIZER_INJECTION_PORT_BASE", "1"), 0);
    assert_eq!(about(&ran, "checker"), ["note: the library is disabled under compute-sanitizer"]);
    let other = compile_library("scope_below.c", "plugins/libbeside.so", &[]);
    let ran = examined(&place, &run().preload(std::slice::from_ref(&other)), 0);
    let why = format!(
        "note: LD_PRELOAD contains {}: `cachealloc run` puts the library first",
        other.display()
    );
    assert_eq!(about(&ran, "preload"), [why]);
    let ran = examined(&place, &run().env("container", "oci"), 0);
    assert!(about(&ran, "container")[0].starts_with("note: a container: "), "{ran:#?}");
    let ran = examined(&place, &run().env("CUDA_VISIBLE_DEVICES", "0"), 0);
    assert_eq!(
        about(&ran, "GPU").last().map(String::as_str),
        Some("note: CUDA_VISIBLE_DEVICES=0 selects and numbers them")
    );
}

/// A program of Conda or Spack may bring a newer unwinder than the one that the library needs.
#[test]
fn a_newer_unwinder_of_the_program_is_named() {
    let place = Place::new();
    for folder in ["bin", "lib"] {
        fs::create_dir_all(place.path.join(folder)).expect("target/ is writable");
    }
    build(&place, "bin/plain", &[]);
    for (version, found) in [("3.0", false), ("99.0.0", true)] {
        fs::write(place.path.join("map"), format!("GCC_{version} {{ global: f; }};\n"))
            .expect("a file");
        let map = format!("-Wl,--version-script={}", place.path.join("map").display());
        let flags = ["-shared", "-fPIC", &map];
        build_of(&place, "lib/libgcc_s.so.1", "int f(void) { return 0; }\n", &flags);
        let ran = examined(&place, &cachealloc("doctor -- bin/plain"), 0);
        let lines = about(&ran, "libgcc_s");
        assert_eq!(lines.len(), usize::from(found), "{version}: {ran:#?}");
        assert!(lines.iter().all(|line| line.contains("is of GCC 99.0, and ")), "{ran:#?}");
    }
}

#[test]
fn an_mps_server_is_named() {
    let place = Place::new();
    let run = cachealloc("doctor").env("CUDA_MPS_PIPE_DIRECTORY", place.path.as_os_str());
    assert_eq!(about(&examined(&place, &run, 0), "MPS"), [""; 0]);
    fs::write(place.path.join("control"), "").expect("target/ is writable");
    let lines = about(&examined(&place, &run, 0), "MPS");
    assert!(
        lines[0].ends_with(" has the pipes of an MPS server: limits that it sets were not tried")
    );
}

/// A GPU-sharing tool counts cached memory in its limit only if it comes after the library.
#[test]
fn sharing_tools_are_reported_with_their_place() {
    let place = Place::new();
    let flags = ["-DSHARE", "-ldl"];
    let share = compile_library("chain_neighbour.c", "neighbours/libshare.so", &flags);
    let in_front = [share.clone(), library()];
    let behind = [library(), share.clone()];
    for (order, wanted) in [
        (&in_front[..], "comes before the library and intercepts driver calls"),
        (&behind, "intercepts driver calls after the library"),
        // `run` puts the library first.
        (std::slice::from_ref(&share), "intercepts driver calls after the library"),
    ] {
        let ran = place.run(&cachealloc("doctor").preload(order));
        let begin = format!("note: {} {wanted}", share.display());
        let lines = about(&ran, "preload");
        assert_eq!(lines.iter().filter(|line| line.starts_with(&begin)).count(), 1, "{ran:#?}");
    }
}
