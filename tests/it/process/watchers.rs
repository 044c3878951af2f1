//! Debuggers and tracers, started with a program or attached to one: the program and the library
//! continue as without them.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use cachealloc_tests::{Run, compile, library, skipped};

use crate::process::children::has;
use crate::record::snapshots::Place;

/// Runs `tests/c/record/triggers.c` under a debugger or tracer.
fn under(tool: &[&str], way: &str) -> Run {
    let (name, options) = tool.split_first().expect("a tool");
    let run = options.iter().fold(Run::program(*name), |run, option| run.arg(*option));
    run.arg(compile("triggers.c")).args(way)
}

/// The program ends in the same way: strace passes its end on, and gdb reports it.
#[test]
fn started_with_a_program() {
    let strace = ["strace", "-f", "-o", "/dev/null"].as_slice();
    let gdb =
        ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "run", "--args"];
    for tool in [strace, &gdb] {
        if !has(tool[0]) {
            return;
        }
        for (way, told) in
            [("return", "exited with code 03"), ("raise TERM", "received signal SIGTERM")]
        {
            let native = under(tool, way).native().output();
            if native.stderr.contains("ptrace") || native.stderr.contains("Operation not permitted")
            {
                return skipped("processes may not be traced");
            }
            let place = Place::new();
            let ours = place.run(&under(tool, way).conf("record:all,log:quiet"));
            assert_eq!(native.code, ours.code, "{tool:?} {way}: {ours:#?}");
            if tool[0] == "strace" {
                assert_eq!((&native.stdout, &native.stderr), (&ours.stdout, &ours.stderr));
            } else {
                assert!(native.stdout.contains(told) && ours.stdout.contains(told), "{ours:#?}");
            }
            // gdb keeps the signal, and kills the program that it has started.
            let ends_by_itself = tool[0] == "strace" || way == "return";
            let count = usize::from(ends_by_itself);
            place.sound(count..=count, &[]);
        }
    }
}

/// A program that records and waits for a line.
fn waiting(place: &Place) -> Child {
    let run = Run::c("killed.c").arg("waits").conf("record:all,log:quiet").folder(&place.path);
    let mut command = run.plain_command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut ready = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
    child
}

/// All threads, including the library's, are stopped meanwhile, for longer than any thread waits
/// for the writer.
#[test]
fn attached_to_a_program() {
    let gdb = "gdb -nx -batch -p PID -ex 'thread apply all bt 9' -ex 'shell sleep 6' -ex detach";
    let strace = "timeout 1 strace -f -o /dev/null -p PID";
    for (name, tool) in [("gdb", gdb), ("strace", strace)] {
        if !has(name) {
            return;
        }
        let place = Place::new();
        let mut child = waiting(&place);
        let id = child.id().to_string();
        let script = tool.replace("PID", &id);
        let watched = Command::new("sh").arg("-c").arg(script).stdin(Stdio::null()).output();
        let watched = watched.expect("sh");
        let said = String::from_utf8_lossy(&[watched.stdout, watched.stderr].concat()).into_owned();
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        let ended = child.wait_with_output().expect("a child");
        if said.contains("not permitted") {
            return skipped("processes may not be traced");
        }
        assert!(ended.status.success() && ended.stderr.is_empty(), "{tool}: {ended:?}\n{said}");
        assert!(name == "strace" || said.contains(" main ("), "{said}");
        place.sound(1..=1, &["--from-start"]);
    }
}

/// The time during which both threads were stopped does not count as a wait for the writer.
#[test]
fn frozen_while_it_ends() {
    let runs: Vec<_> = (0..8)
        .map(|number| {
            let place = Place::new();
            let delay = (number * 8).to_string();
            let run =
                Run::c("freezer.c").preload(&[]).arg(delay).arg(compile("ends.c")).arg("leaves");
            let run = run.env("FREEZER_PRELOAD", library()).conf("record:all");
            std::thread::spawn(move || (place.run(&run), place))
        })
        .collect();
    for run in runs {
        let (ran, place) = run.join().expect("it runs");
        if ran.stderr.contains("not permitted") {
            return skipped("processes may not be traced");
        }
        assert_eq!(ran.code, Some(3), "{ran:#?}");
        assert!(ran.said().iter().all(|line| line.contains("snapshot: /")), "{ran:#?}");
        place.sound(1..=1, &["--from-start"]);
    }
}
