//! Other preloaded or linked libraries: each works as without this library, and so does this
//! library.

use std::path::{Path, PathBuf};

use cachealloc_tests::{Run, compile_with, library, skipped};

use crate::record::snapshots::Place;

/// Returns the path of a library of this machine, or `None` if it is not installed.
fn installed(name: &str) -> Option<PathBuf> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.map(|folder| PathBuf::from(folder).join(name));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        skipped(&format!("{name} is not installed"));
    }
    found
}

/// Checks that the process ends as it does without the other library, loaded before this one and
/// after it, and that its snapshots are complete.
#[track_caller]
fn ends_as_ever(other: &Path, variables: &[(&str, &str)]) {
    for list in [[other.to_path_buf(), library()], [library(), other.to_path_buf()]] {
        for (way, said, count) in
            [("killed malloc 4", "ended with 143\n", 1), ("many 5 exit", "codes 0\n", 5)]
        {
            let place = Place::new();
            let run = way.split(' ').fold(Run::c("ends.c"), |run, word| run.arg(word));
            let run = variables.iter().fold(run, |run, (name, value)| run.env(name, *value));
            let ran = place.run(&run.preload(&list).conf("record:all,log:quiet"));
            // The program measures its time by the clock that the library fakes.
            let first = ran.stdout.lines().next().map(|line| format!("{line}\n"));
            assert_eq!(first.as_deref(), Some(said), "{way}, {list:?}: {ran:#?}");
            place.sound(count..=count, &[]);
        }
    }
}

/// The other library owns the heap's lock, and a thread may be stopped while holding it.
#[test]
fn other_heaps() {
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        if let Some(other) = installed(name) {
            ends_as_ever(&other, &[]);
        }
    }
}

/// Clocks that jump, stand still or run.
#[test]
fn other_clocks() {
    let Some(other) = installed("faketime/libfaketimeMT.so.1") else { return };
    for time in ["+5y", "2020-01-01 00:00:00", "@2020-01-01 00:00:00 x100"] {
        ends_as_ever(&other, &[("FAKETIME", time)]);
    }
}

/// The sanitizer reports no error and no leak. It would report a leak of the program if the library
/// kept the only pointers to memory in places that are not scanned. The sanitizer's runtime, linked
/// in, calls the library before any constructor has run.
#[test]
fn address_sanitizer() {
    let program = compile_with("ends.c", "ends-asan", &["-fsanitize=address", "-static-libasan"]);
    for (words, said, code, count) in [
        ("many 3 exit", "codes 0\n", 0, 3),
        ("killed malloc 3", "ended with 143\n", 0, 1),
        ("frees_at_exit", "the program's destructor\n", 3, 1),
    ] {
        let place = Place::new();
        let run = Run::program(&program).args(words).conf("record:all,log:quiet");
        let ran = place.run(&run);
        assert_eq!((ran.stdout.as_str(), ran.code), (said, Some(code)), "{words}: {ran:#?}");
        assert!(!ran.stderr.contains("Sanitizer"), "{}", ran.stderr);
        place.sound(count..=count, &[]);
    }
}
