//! Files that the command writes are complete or absent, in the given place, and nothing else is
//! touched.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cachealloc_tests::{Run, command, lacks};

use super::sites::{planted, run, said};
use crate::command::cachealloc;
use crate::command::live::failed;
use crate::record::snapshots::Place;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the file").permissions().mode() & 0o777
}

/// The target of a prepared link is never written, whether or not it exists.
#[test]
fn a_symbolic_link_is_refused() {
    let place = planted();
    let precious = place.path.join("precious");
    fs::write(&precious, "precious").expect("target/ is writable");
    symlink("precious", place.path.join("a.html")).expect("target/ is writable");
    symlink("not there", place.path.join("b.html")).expect("target/ is writable");
    for (name, target) in [("a.html", "precious"), ("b.html", "not there")] {
        for begin in ["report 2.pickle -o", "convert 2.pickle --to json -o"] {
            let why = format!(
                "{name} is a symbolic link to {target}: cannot overwrite the target of a link; \
                 name the file itself with -o, or remove the link"
            );
            failed(&run(&place, &format!("{begin} {name}")), &why);
        }
    }
    assert_eq!(fs::read_to_string(&precious).expect("the file"), "precious");
    assert!(!place.path.join("not there").exists());
    assert_eq!(place.names().len(), 5, "{:?}", place.names());
}

/// Pipes and devices have no contents that could be lost.
#[test]
fn output_to_a_non_file_is_written_directly() {
    let place = planted();
    assert_eq!(said(&place, "convert 2.pickle --to folded -o /dev/null"), "");
    let shell = |script: &str| {
        let script = script.replace("cachealloc", &command().display().to_string());
        let run = Run::program("/bin/sh").native().arg("-c").arg(script);
        run.folder(&place.path).output().ok().stdout
    };
    let folded = said(&place, "convert 2.pickle --to folded");
    let way = "convert 2.pickle --to folded -o";
    // Through links: to a pipe of a descriptor, and to a named one.
    assert_eq!(shell(&format!("cachealloc {way} /dev/stdout | cat")), folded);
    let script = format!("mkfifo f; ln -s f l; cat f & cachealloc {way} l; wait");
    assert_eq!(shell(&script), folded);
    assert_eq!(shell(&format!("cat f & cachealloc {way} f; wait; rm f l")), folded);
}

#[test]
fn file_mode_is_kept() {
    let place = planted();
    let path = place.path.join("a.html");
    let old = place.path.join("hard link");
    for wanted in [0o600, 0o640, 0o444] {
        fs::write(&path, "old").expect("target/ is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(wanted)).expect("it is ours");
        let _ = fs::remove_file(&old);
        fs::hard_link(&path, &old).expect("target/ is writable");
        run(&place, "report 2.pickle -o a.html --force").ok();
        assert_eq!(mode(&path), wanted);
        assert_eq!(
            fs::read_to_string(&old).expect("the file"),
            "old",
            "another name of the old file"
        );
        fs::remove_file(&path).expect("target/ is writable");
    }
    run(&place, "report 2.pickle -o a.html").ok();
    let plain = place.path.join("plain");
    fs::write(&plain, "").expect("target/ is writable");
    assert_eq!(mode(&path), mode(&plain), "as the umask has it");
}

/// A file of another user that is open to all does not make the new file open. Only root can be
/// another user here.
#[test]
fn open_mode_of_another_users_file_is_not_kept() {
    let place = planted();
    let path = place.path.join("a.html");
    fs::write(&path, "").expect("target/ is writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
    if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
        run(&place, "report 2.pickle -o a.html --force").ok();
        assert_eq!(mode(&path) & 0o022, 0, "{:o}", mode(&path));
    }
}

/// Others cannot take the temporary name of a file, because they cannot guess it.
#[test]
fn temporary_name_cannot_be_guessed() {
    let place = planted();
    let script = format!(
        "for n in a.html .a.html; do ln -s precious $n.$$.part; done; \
         exec {} report 2.pickle -o a.html",
        command().display()
    );
    fs::write(place.path.join("precious"), "precious").expect("target/ is writable");
    Run::program("/bin/sh").native().arg("-c").arg(script).folder(&place.path).output().ok();
    assert_eq!(fs::read_to_string(place.path.join("precious")).expect("the file"), "precious");
    assert!(fs::symlink_metadata(place.path.join("a.html")).expect("the report").is_file());
}

/// A snapshot that takes a while.
const LARGE: &str = "
import pickle
entry = lambda n: dict(action='alloc', addr=4096 * n, size=512, stream=0, time_us=n, frames=[])
pickle.dump(dict(segments=[], device_traces=[[entry(n) for n in range(600000)]]), open('large.pickle', 'wb'), 4)
";

/// `env` restores the default action of each signal: whoever runs the tests may ignore some, and
/// the command would inherit that.
#[test]
fn signal_leaves_no_partial_file() {
    if lacks("python3") {
        return;
    }
    let place = Place::new();
    let made = Command::new("python3").args(["-c", LARGE]).current_dir(&place.path).status();
    assert!(made.expect("python3 is installed").success());
    for (signal, code) in [("-TERM", 15), ("-INT", 2), ("-HUP", 1)] {
        for begin in ["convert large.pickle --to json -o a", "report large.pickle -o a"] {
            let defaults = Run::program("env").native().arg("--default-signal=TERM,INT,HUP");
            let command = defaults.arg(command()).args(begin).folder(&place.path);
            let mut child = command.plain_command().spawn().expect("env is installed");
            let begun = Instant::now();
            while place.names().len() == 1 && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
            crate::command::live::kill(signal, child.id());
            let status = child.wait().expect("it ends");
            let ended_by = std::os::unix::process::ExitStatusExt::signal(&status);
            assert_eq!((ended_by, place.names()), (Some(code), vec!["large.pickle".to_string()]));
        }
    }
}

/// A signal that the caller ignores does not end the command.
#[test]
fn an_ignored_signal_stays_ignored() {
    let place = planted();
    let script = format!(
        "trap '' HUP TERM INT; (while sleep 0.01; do kill -HUP $$ || exit; kill -TERM $$; done) & \
         {} report 2.pickle -o a.html; code=$?; kill -KILL $!; exit $code",
        command().display()
    );
    Run::program("/bin/sh").native().arg("-c").arg(script).folder(&place.path).output().ok();
    assert!(place.path.join("a.html").exists());
}

/// A file is replaced only with --force, whatever its name. The command prints what it wrote.
#[test]
fn report_replaces_no_file() {
    let place = planted();
    let there = |name: &str| fs::read_to_string(place.path.join(name)).expect("the file");
    for (arguments, name) in
        [("report 2.pickle", "2.html"), ("report 2.pickle -o a.html", "a.html")]
    {
        let ran = run(&place, arguments).ok();
        assert_eq!((ran.stdout, ran.stderr), ("".into(), format!("cachealloc: report: {name}\n")));
        let first = there(name);
        assert!(first.ends_with("</html>\n"), "{name}");
        fs::write(place.path.join(name), "old").expect("target/ is writable");
        let why =
            format!("{name} already exists; replace it with --force, or name another file with -o");
        failed(&run(&place, arguments), &why);
        assert_eq!(there(name), "old");
        run(&place, &format!("{arguments} --force")).ok();
        assert_eq!(there(name), first);
    }
    symlink("nowhere", place.path.join("5.html")).expect("target/ is writable");
    let ran = run(&place, "report 5.pickle --force");
    assert!(ran.stderr.contains("5.html is a symbolic link to nowhere"), "{ran:?}");
    assert_eq!(place.names().len(), 5, "{:?}", place.names());
}

/// A file's name is bytes.
#[test]
fn names_that_are_not_text() {
    let place = planted();
    let name = std::ffi::OsStr::from_bytes(b"a-\xff\xfe.html");
    cachealloc("report 2.pickle -o").arg(name).folder(&place.path).output().ok();
    assert!(place.path.join(name).exists(), "{:?}", place.names());
    fs::remove_file(place.path.join(name)).expect("the report");
    for (rank, name) in [(None, &b"b-\xff.html"[..]), (Some("3"), b"b-\xff-3.html")] {
        let mut run = cachealloc("run --report").arg(std::ffi::OsStr::from_bytes(b"b-\xff.html"));
        run = run.arg("--").arg(cachealloc_tests::compile("planted.c")).arg("2");
        if let Some(rank) = rank {
            run = run.env("PMI_RANK", rank);
        }
        let ran = place.run(&run).ok();
        let name = std::ffi::OsStr::from_bytes(name);
        assert!(place.path.join(name).exists(), "{:?} {}", place.names(), ran.stderr);
    }
}

/// A setting that is not text is not converted into another one.
#[test]
fn settings_that_are_not_text() {
    let place = Place::new();
    let conf = std::ffi::OsStr::from_bytes(b"record:all,snapshot:s-\xff.pickle");
    let native = Run::c("planted.c").arg("2").env("CACHEALLOC_CONF", conf);
    // Built by hand: `env` of the tests would convert it to text.
    let by_hand = |run: &Run| {
        let mut command = run.clone().folder(&place.path).plain_command();
        command.env("CACHEALLOC_CONF", conf).output().expect("it runs")
    };
    let ran = by_hand(&native);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(said.contains("invalid snapshot 's-\u{fffd}.pickle': not UTF-8"), "{said}");
    let changed = place.names().iter().any(|name| name.contains('\u{fffd}'));
    assert!(!changed, "{:?}", place.names());
    let under = cachealloc("run -- true");
    let ran = by_hand(&under);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    let wanted = "cachealloc: CACHEALLOC_CONF is not UTF-8: ";
    assert!(said.starts_with(wanted) && ran.status.code() == Some(2), "{said}");
}
