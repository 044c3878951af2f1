//! `cachealloc report`: the page says what was planted, by file and line. What it does in a browser:
//! `scripts/report-test.py`.

use std::fs;

use super::cachealloc;
use super::live::failed;
use super::sites::{line_of, planted, run, said};

#[test]
fn what_was_planted_is_said() {
    let place = planted();
    assert_eq!(said(&place, "report 2.pickle 5.pickle -o both.html"), "");
    let page = fs::read_to_string(place.path.join("both.html")).expect("the report");
    let (_, findings) = page.split_once("<div id=\"findings\">").expect("the findings");
    let (findings, _) = findings.split_once("</div>").expect("their end");
    let findings = findings.replace("&lt;", "<");
    let get = line_of("asks");
    let from = |comment, function| {
        format!("c/planted.c:{get} < c/planted.c:{} (get < {function})", line_of(comment))
    };
    for wanted in [
        format!("2 blocks, 6.00 MiB, were never freed: all from {}", from("leak", "leak")),
        format!("5 blocks, 15.0 MiB, were never freed: all from {}", from("leak", "leak")),
        format!(
            "were temporary, freed with at most 1 other in between: most (100) from {}",
            from("temporary", "burst")
        ),
        "1 request could not be served".to_string(),
    ] {
        assert!(findings.contains(&wanted), "{wanted}\n{findings}");
    }
    for loads in ["http://", "https://", "src=", "<link"] {
        assert!(!page.contains(loads), "the report has {loads}");
    }
}

#[test]
fn without_a_name_it_is_beside_the_user() {
    let place = planted();
    said(&place, "report 2.pickle");
    assert!(place.path.join("cachealloc.html").exists());
}

#[test]
fn what_cannot_be_is_a_sentence() {
    let place = planted();
    let why = "nowhere/x.html cannot be written: No such file or directory (os error 2)";
    failed(&run(&place, "report 2.pickle -o nowhere/x.html"), why);
    fs::write(place.path.join("text.pickle"), "text").expect("writable");
    let why = "text.pickle is no snapshot: it does not begin as a pickle does";
    failed(&run(&place, "report text.pickle"), why);
    assert!(!place.path.join("cachealloc.html").exists(), "no report of nothing");
    let ran = cachealloc("report").folder(&place.path).output();
    assert!(ran.stderr.contains("<FILE>..."), "{}", ran.stderr);
}
