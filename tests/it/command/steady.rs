//! How long no allocation has reached the driver, and what ended the last steady state.

use serde_json::Value;

use super::cachealloc;
use crate::record::statistics::{Running, statistics};

/// Starts a program that was steady for a second, took more, and is steady since.
fn steady(record: &str) -> Running {
    let conf = format!("record:{record},snapshot:/dev/null/no,log:quiet");
    let running = Running::new(statistics("steady").conf(&conf));
    running.wait_for_file();
    running
}

fn print(format: &str, running: &Running) -> String {
    let process = running.child.id();
    cachealloc(&format!("stats --format {format} {process}")).output().ok().stdout
}

fn json(running: &Running) -> Value {
    serde_json::from_str(&print("json", running)).expect("it is JSON")
}

#[test]
fn every_format_shows_the_steady_state() {
    let running = steady("state");
    let seconds = || json(&running)["steady_seconds"].as_f64().expect("the driver was asked");
    let before = seconds();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let after = seconds();
    assert!(after >= before + 0.05 && after < 60.0, "{before}, then {after}");
    let frames = json(&running)["steady_ended_by"].clone();
    assert_eq!(frames[0]["name"], "get", "{frames}");
    let text = print("text", &running);
    let line = |begin: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(begin));
        line.unwrap_or_else(|| panic!("no line begins with {begin}: {text}")).trim().to_string()
    };
    assert!(line("since one reached the driver").ends_with('s'));
    let place = line("last steady state ended by");
    // Every allocation goes through `get`, so it is no call site.
    let named = |place: &str| {
        let lines = place.split(|letter: char| letter.is_ascii_digit());
        lines
            .collect::<String>()
            .contains("get record/statistics.c: < takes_more record/statistics.c:")
    };
    assert!(named(&place), "{place}");
    let sites = text.split("CALL SITE").nth(1).expect("call sites");
    assert!(sites.lines().nth(1).is_some_and(named), "{text}");
    let prometheus = print("prometheus", &running);
    for begin in ["cachealloc_steady_seconds{pid=", "cachealloc_steady_ended_by{pid="] {
        assert_eq!(prometheus.matches(begin).count(), 1, "{prometheus}");
    }
    let ended = prometheus.lines().find(|line| line.starts_with("cachealloc_steady_ended_by{"));
    assert!(ended.is_some_and(named), "{prometheus}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn recording_names_what_ended_the_steady_state() {
    let running = steady("off");
    let json = json(&running);
    assert!(json["steady_seconds"].is_number() && json["steady_ended_by"].is_null(), "{json}");
    assert!(!print("text", &running).contains("the last steady state"));
    assert!(!print("prometheus", &running).contains("steady_ended_by{"));
    assert_eq!(running.end(), Some(0));
}
