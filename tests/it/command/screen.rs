//! `cachealloc top` on a terminal: a pseudo-terminal, driven by `screen.py`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use cachealloc_tests::{command, lacks, root};

use super::live::busy;
use crate::record::statistics::Running;

const RECORDS: &str = "record:all,max_entries:1000,snapshot:/dev/null/no,log:quiet";

/// Starts the command with these arguments on a terminal, where a user acts in this way.
fn person(way: &str, running: &Running, arguments: &[&str]) -> Child {
    let mut person = Command::new("python3");
    person.arg(root().join("tests/it/command/screen.py")).arg(way).arg(command()).arg("top");
    person.args(arguments).env("OWN", running.child.id().to_string()).stdin(Stdio::null());
    person.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3 is installed")
}

#[track_caller]
fn is_content(person: Child) {
    let output = person.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("as before\n"), "{said}");
}

#[test]
fn screen_follows_keys_and_restores_the_terminal() {
    if lacks("python3") {
        return;
    }
    let running = busy(RECORDS);
    is_content(person("keys", &running, &[]));
    assert_eq!(running.end(), Some(0), "the program did not notice");
}

#[test]
fn the_watched_process_may_end() {
    if lacks("python3") {
        return;
    }
    let running = busy(RECORDS);
    let mut person = person("ends", &running, &[&running.child.id().to_string()]);
    let mut lines = BufReader::new(person.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a pipe");
    if line == "watching\n" {
        assert_eq!(running.end(), Some(0));
    }
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("a pipe");
    let output = person.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((line.as_str(), rest.as_str()), ("watching\n", "as before\n"), "{said}");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    if lacks("python3") {
        return;
    }
    let running = busy(RECORDS);
    for signal in ["SIGTERM", "SIGHUP", "SIGINT"] {
        is_content(person(signal, &running, &[]));
    }
    assert_eq!(running.end(), Some(0));
}

/// A terminal, too, gets a single table, if the user asks for one or the terminal has no space.
#[test]
fn one_table_on_a_terminal() {
    let running = busy(RECORDS);
    let id = running.child.id().to_string();
    for (term, option) in [("xterm", " --once"), ("dumb", "")] {
        let line = format!("{} top{option} {id}", command().display());
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", term).stdin(Stdio::null());
        let output = script.output().expect("util-linux");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert!(text.contains("BYTES  AT THE PEAK  BLOCKS"), "{text}");
        // Only titles are highlighted, and only on a terminal that can show it.
        let steers = text.lines().filter(|line| line.contains('\u{1b}'));
        let titles = steers.map(|line| assert!(line.starts_with("\u{1b}[1m"), "{line:?}")).count();
        assert_eq!(titles > 0, term == "xterm", "{text}");
    }
    assert_eq!(running.end(), Some(0));
}
