//! The statistics as others see them: by the C functions, and in a file at the end. `scripts/check-statistics.py` knows what must hold between the numbers.

use std::fs;
use std::path::Path;
use std::process::Command;

use cachealloc_tests::{Run, root};

use crate::snapshots::{Place, trigger};

fn statistics(way: &str) -> Run {
    way.split(' ').fold(Run::c("statistics.c"), |run, word| run.arg(word))
}

#[track_caller]
fn check(options: &[&str], file: &Path) -> String {
    let checker = Command::new("python3")
        .arg(root().join("scripts/check-statistics.py"))
        .args(options)
        .arg(file)
        .output()
        .expect("python3 is installed: see .ci/run");
    let said = String::from_utf8_lossy(&checker.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&checker.stderr).into_owned();
    assert!(checker.status.success(), "{said}{wrong}");
    said
}

/// The program itself compares with what it did, in each mode and while recording.
#[test]
fn numbers_are_what_the_program_did() {
    for conf in ["", "free_mode:strict", "free_mode:relaxed", "record:state", "record:all"] {
        let conf = format!("{conf},log:quiet,snapshot:/dev/null");
        // In mode `relaxed` a block stays active until somebody asks whether its work is over.
        let lists = (!conf.contains("relaxed")).then_some("lists");
        for way in lists.into_iter().chain(["contexts", "busy 1 exit", "busy 4 exit"]) {
            let ran = statistics(way).conf(&conf).output().ok();
            assert_eq!(ran.stderr, "", "{way}, {conf}");
        }
    }
}

#[test]
fn the_c_functions_answer() {
    let place = Place::new();
    for conf in ["log:quiet", "log:quiet,record:all,snapshot:/dev/null"] {
        let ran = place.run(&statistics("api").conf(conf)).ok();
        let file = place.path.join("api.json");
        fs::write(&file, &ran.stdout).expect("target/ is writable");
        let said = check(&[], &file);
        assert!(said.contains("1 sound reports, 2 allocations"), "{said}");
        let recorded = !ran.stdout.contains("\"libraries\": null");
        assert_eq!(recorded, conf.contains("record"), "{}", ran.stdout);
    }
}

/// Whatever way a process ends: one file, and it is whole.
#[test]
fn a_file_at_every_end() {
    for way in ["return", "exit", "_exit", "_Exit", "quick_exit", "raise TERM", "exit_busy"] {
        let place = Place::new();
        let native = place.run(&trigger(way).native());
        let ran = place.run(&trigger(way).conf("stats_on_exit:all-%n.json"));
        assert_eq!((&native.stdout, native.code), (&ran.stdout, ran.code), "{way}: {ran:#?}");
        assert_eq!(place.names(), ["all-0.json"], "{way}");
        assert!(ran.stderr.contains("statistics: "), "{way}: {}", ran.stderr);
        check(&[], &place.path.join("all-0.json"));
    }
    let place = Place::new();
    place.run(&trigger("no_cuda").conf("stats_on_exit:all.json"));
    place.run(&trigger("return").conf("stats_on_exit:/no/such/folder/all.json"));
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_file_of_text_for_people() {
    let place = Place::new();
    place.run(&statistics("contexts").conf("stats_on_exit:all.txt")).ok();
    let text = fs::read_to_string(place.path.join("all.txt")).expect("the file");
    assert_eq!(text.matches("CUDA memory summary, device ID 0, context").count(), 2, "{text}");
    let table = text.lines().filter(|line| line.starts_with('|'));
    assert!(
        table.clone().count() == 2 * 47 && table.clone().all(|line| line.len() == 77),
        "{text}"
    );
    for wanted in ["allocations served  ", "driver: reserve  ", "not recorded (record:state)"] {
        assert!(text.contains(wanted), "{text}");
    }
}

/// 22 MiB at the peak, 7 at the end, by the program itself.
#[test]
fn who_holds_how_much() {
    for record in ["state", "all"] {
        let place = Place::new();
        let conf = format!("record:{record},snapshot:/dev/null,stats_on_exit:all.json");
        place.run(&statistics("holders").conf(&conf)).ok();
        let text = fs::read_to_string(place.path.join("all.json")).expect("the file");
        let libraries = text.split("\"libraries\"").nth(1).expect("the libraries");
        let words: String = libraries.split_whitespace().collect();
        let (now, peak) = (7 << 20, 22 << 20);
        let wanted =
            format!(r#":[{{"device":0,"library":"app","bytes":{now},"bytes_at_peak":{peak}}}]}}"#);
        assert_eq!(words, wanted);
    }
}
