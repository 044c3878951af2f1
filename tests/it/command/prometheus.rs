//! `cachealloc stats --format prometheus`: strict OpenMetrics readers, this one and Prometheus'
//! own, accept it, and its numbers are those of the JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use cachealloc_tests::{lacks, skipped};
use serde_json::Value;

use super::cachealloc;
use super::hostile::Forger;
use super::live::busy;

/// Labels, in the order of the text.
type Labels = Vec<(String, String)>;

/// Returns the type and the samples of each family.
///
/// # Panics
///
/// Panics if the text violates the specification: the lines of a family stand together; it is
/// described once, before its samples; a counter ends in `_total`; a name contains its unit; no
/// sample appears twice; the text ends with `# EOF`.
fn read(text: &str) -> BTreeMap<String, (String, BTreeMap<Labels, f64>)> {
    let mut families: BTreeMap<String, (String, BTreeMap<Labels, f64>)> = BTreeMap::new();
    let mut open = String::new();
    let mut described = BTreeSet::new();
    let text = text.strip_suffix("# EOF\n").expect("the end");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_else(|| panic!("{line}"));
            let (what, name, value) = (word(), word(), word());
            is_name(name);
            match what {
                "TYPE" => {
                    assert!(["gauge", "counter"].contains(&value), "{line}");
                    let new =
                        families.insert(name.to_string(), (value.to_string(), BTreeMap::new()));
                    assert!(new.is_none() && !name.ends_with("_total"), "{line}");
                    open = name.to_string();
                }
                "UNIT" => assert!(name.ends_with(&format!("_{value}")), "{line}"),
                "HELP" => assert!(!value.is_empty(), "{line}"),
                _ => panic!("{line}"),
            }
            assert!(name == open && described.insert((what.to_string(), open.clone())), "{line}");
            assert!(families[&open].1.is_empty(), "{line}");
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("{line}"));
        let (kind, samples) = families.get_mut(&open).expect("a family");
        let total = if kind == "counter" { "_total" } else { "" };
        assert_eq!(name, format!("{open}{total}"), "{line}");
        let (labels, rest) = labels(rest);
        let value: f64 = rest.strip_prefix(' ').and_then(|it| it.parse().ok()).expect(line);
        assert!(value.is_finite() && value >= 0.0, "{line}");
        assert!(samples.insert(labels, value).is_none(), "twice: {line}");
    }
    families
}

fn is_name(name: &str) {
    let mut letters = name.chars();
    let is_first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    assert!(letters.next().is_some_and(is_first), "{name}");
    assert!(letters.all(|letter| is_first(letter) || letter.is_ascii_digit()), "{name}");
}

/// Parses `a="b",c="d"}` and returns the rest of the text.
fn labels(text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        let (name, value) = rest.split_once("=\"").expect("a label");
        is_name(name);
        assert!(labels.iter().all(|(known, _)| known != name), "twice: {name}");
        let mut read = String::new();
        let mut letters = value.char_indices();
        let end = loop {
            match letters.next().expect("the end of a value") {
                (at, '"') => break at,
                (_, '\\') => match letters.next().expect("a letter").1 {
                    'n' => read.push('\n'),
                    letter @ ('\\' | '"') => read.push(letter),
                    letter => panic!("\\{letter}"),
                },
                (_, letter) => {
                    assert!(!letter.is_control(), "{text}");
                    read.push(letter);
                }
            }
        };
        labels.push((name.to_string(), read));
        rest = &value[end + 1..];
        match rest.as_bytes()[0] {
            b'}' => return (labels, &rest[1..]),
            b',' => rest = &rest[1..],
            _ => panic!("{rest}"),
        }
    }
}

fn of<'a>(labels: &'a Labels, name: &str) -> &'a str {
    labels.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// Prints the name, labels and value of each sample that Prometheus' own readers find.
const JUDGE: &str = r#"
import json, sys
from prometheus_client import parser
from prometheus_client.openmetrics import parser as strict
text = sys.stdin.read()
def samples(read):
    all = [sample for family in read(text) for sample in family.samples]
    return sorted((sample.name, sorted(sample.labels.items()), float(sample.value)) for sample in all)
found = samples(strict.text_string_to_metric_families)
assert found == samples(parser.text_string_to_metric_families)
json.dump(found, sys.stdout)
"#;

/// Reads the text with this reader and with Prometheus', and checks that both find the same.
fn read_twice(text: &str) -> BTreeMap<String, (String, BTreeMap<Labels, f64>)> {
    let families = read(text);
    let has_reader = |python: &&str| {
        let mut import = Command::new(python);
        import.args(["-c", "import prometheus_client"]).stderr(Stdio::null());
        import.status().is_ok_and(|status| status.success())
    };
    // A distribution's package works only with the Python of that distribution.
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has_reader) else {
        skipped("there is no prometheus_client");
        return families;
    };
    let mut judge = Command::new(python);
    judge.args(["-c", JUDGE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut judge = judge.spawn().expect("Python");
    judge.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let judged = judge.wait_with_output().expect("it ends");
    assert!(judged.status.success(), "Prometheus rejects it:\n{text}");
    let judged: Vec<(String, Labels, f64)> = serde_json::from_slice(&judged.stdout).expect("JSON");
    let mut found = Vec::new();
    for (family, (kind, samples)) in &families {
        let total = if kind == "counter" { "_total" } else { "" };
        for (labels, value) in samples {
            let mut labels = labels.clone();
            labels.sort();
            found.push((format!("{family}{total}"), labels, *value));
        }
    }
    found.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    assert_eq!(found, judged);
    families
}

#[test]
fn strict_readers_accept_the_text() {
    let running = busy("record:all,max_entries:1000,snapshot:/dev/null/no,log:quiet");
    let process = running.child.id().to_string();
    let print = |arguments: &str| cachealloc(arguments).output().ok().stdout;
    for arguments in [format!("--format openmetrics {process}"), "--format openmetrics".to_string()]
    {
        let json = || -> Value {
            serde_json::from_str(&print(&format!("stats --json {process}"))).expect("it is JSON")
        };
        let before = json();
        let families = read_twice(&print(&format!("stats {arguments}")));
        let after = json();
        assert!(families.len() > 15, "{:?}", families.keys());
        let own = |name: &str| -> Vec<(Labels, f64)> {
            let (_, samples) = &families[&format!("cachealloc_{name}")];
            let own = samples.iter().filter(|(labels, _)| of(labels, "pid") == process);
            own.map(|(labels, value)| (labels.clone(), *value)).collect()
        };
        let [(info, value)] = &own("process_info")[..] else { panic!("{families:?}") };
        assert!(
            of(info, "command").ends_with("statistics busy 2 exit") && *value == 1.0,
            "{info:?}"
        );
        let [(labels, bytes)] = &own("reserved_peak_bytes")[..] else { panic!("{families:?}") };
        assert!(of(labels, "device") == "0" && of(labels, "uuid").starts_with("GPU-"));
        // These counters only grow.
        let is_between = |value: f64, number: fn(&Value) -> &Value| {
            let number = |json| number(json).as_f64().expect("a number");
            (number(&before)..=number(&after)).contains(&value)
        };
        assert!(is_between(*bytes, |json| &json["devices"]["0"]["reserved_bytes.all.peak"]));
        assert!(is_between(own("allocations")[0].1, |json| &json["allocations_served"]));
        assert_eq!(of(&own("library_bytes")[0].0, "library"), "app");
        let sites = own("call_site_bytes");
        assert!((1..=11).contains(&sites.len()), "{sites:?}");
        let is_named = |(labels, _): &(Labels, f64)| {
            of(labels, "site").starts_with("allocate_until_stopped record/statistics.c:")
        };
        assert!(sites.iter().any(is_named), "{sites:?}");
        assert_eq!(sites.len(), own("call_site_allocations").len());
    }
    assert_eq!(running.end(), Some(0));
}

/// The older format, which the textfile collector of node_exporter reads, declares a type for the
/// name of the samples.
#[test]
fn the_older_format_has_types() {
    let running = busy("record:all,max_entries:1000,snapshot:/dev/null/no,log:quiet");
    let process = running.child.id();
    let text = cachealloc(&format!("stats --format prometheus {process}")).output().ok().stdout;
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    let mut typed = BTreeMap::new();
    let mut counters = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            typed.insert(name, kind);
        } else if !line.starts_with('#') {
            let (name, _) = line.split_once('{').expect("a sample");
            let is_counter = name.ends_with("_total");
            assert_eq!(
                typed.get(name),
                Some(if is_counter { &"counter" } else { &"gauge" }),
                "{line}"
            );
            counters += usize::from(is_counter);
        }
    }
    assert!(counters > 3, "{text}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn without_a_process_there_is_prometheus_only() {
    let failed = |arguments: &str| {
        let ran = cachealloc(&format!("stats {arguments}")).output();
        assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(2)), "{ran:?}");
        ran.stderr
    };
    let why = "cachealloc: without a PID, --format must be prometheus or openmetrics; list the processes with: cachealloc top --once\n";
    assert_eq!(failed("--format json"), why);
    assert!(failed("").contains("<PID>"));
    assert!(failed("--json --format text 5").contains("cannot be used with"));
    assert!(failed("--format xml 5").contains("possible values: text, json, prometheus"));
}

/// Names from other processes are bounded, even if there are more than is useful as names of
/// series.
#[test]
fn names_are_bounded_and_harmless() {
    if lacks("python3") {
        return;
    }
    let forger = Forger::new(300, "many");
    let families = read_twice(&forger.run("stats --format openmetrics PID").ok().stdout);
    for (name, most) in [("library_bytes", 21), ("call_site_bytes", 11)] {
        let (_, samples) = &families[&format!("cachealloc_{name}")];
        assert_eq!(samples.len(), most, "{name}");
        let sum: f64 = samples.values().sum();
        assert_eq!(sum, 50.0, "{name}: what is not named is added up");
        let longest = samples.keys().flatten().map(|(_, value)| value.chars().count()).max();
        assert!(longest <= Some(210), "{longest:?}");
        let is_whole = |(_, value): &(String, String)| value.contains("\"\\");
        assert!(samples.keys().flatten().any(is_whole), "{samples:?}");
    }
}
