//! `cachealloc report`: the page shows what was planted, by file and line. `scripts/report/test.py`
//! tests its behaviour in a browser.

use std::fs;

use cachealloc_tests::{Run, command};

use super::sites::{line_of, planted, run, said};
use crate::command::cachealloc;
use crate::command::live::failed;

#[test]
fn report_finds_planted_problems() {
    let place = planted();
    run(&place, "report 2.pickle 5.pickle -o both.html").ok();
    let page = fs::read_to_string(place.path.join("both.html")).expect("the report");
    let (_, findings) = page.split_once("<div id=\"findings\">").expect("the findings");
    let (findings, _) = findings.split_once("</div>").expect("their end");
    let findings = findings.replace("&lt;", "<");
    let get = line_of("asks");
    let from = |comment, function| {
        format!("get record/planted.c:{get} < {function} record/planted.c:{}", line_of(comment))
    };
    for wanted in [
        format!("2 blocks, 6.00 MiB, were never freed: all from {}", from("leak", "leak")),
        format!("5 blocks, 15.0 MiB, were never freed: all from {}", from("leak", "leak")),
        format!(
            "were temporary (freed after at most 1 other allocation): most (100) from {}",
            from("temporary", "burst")
        ),
        "Out of memory, ".to_string(),
    ] {
        assert!(findings.contains(&wanted), "{wanted}\n{findings}");
    }
    for loads in ["http://", "https://", "src=", "<link"] {
        assert!(!page.contains(loads), "the report has {loads}");
    }
}

/// The smallest devices on the page are those that the command prints, to the digit.
#[test]
fn fit_of_the_page_matches_the_command() {
    let place = planted();
    for file in ["2.pickle", "5.pickle"] {
        run(&place, &format!("report {file} -o fit.html --force")).ok();
        let page = fs::read_to_string(place.path.join("fit.html")).expect("the report");
        let (_, section) = page.split_once("<section id=\"fit\"").expect("the section");
        let (section, _) = section.split_once("</section>").expect("its end");
        let section = section.replace("<wbr>", "");
        let text = section.split('<').filter_map(|part| part.split_once('>')).map(|it| it.1);
        let words = text.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        let words = words.replace("&lt;", "<");
        for line in said(&place, &format!("fit {file}")).lines().filter(|it| !it.contains("LEAST"))
        {
            let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
            // In the page the names come first. It lacks how long blocks lived, and the sum of the
            // other sites.
            let wanted = match cells.collect::<Vec<_>>()[..] {
                [.., "WHERE"] => continue,
                [.., rest] if rest.contains(" other site") => continue,
                [held, share, blocks, _, library, place] if share.ends_with('%') => {
                    [place, library, held, share, blocks].join(" ")
                }
                [ref numbers @ .., options] => [&[options], numbers].concat().join(" "),
                [] => continue,
            };
            assert!(words.contains(&wanted), "{wanted}\n{words}");
        }
    }
}

/// The page is named after the snapshot and written to the current folder. The page of a snapshot
/// from stdin is `cachealloc.html`.
#[test]
fn page_is_named_after_the_snapshot() {
    let place = planted();
    fs::create_dir(place.path.join("run")).expect("target/ is writable");
    fs::rename(place.path.join("2.pickle"), place.path.join("run/a.b.pickle")).expect("ours");
    run(&place, "report run/a.b.pickle 5.pickle").ok();
    let script = format!("{} report - <5.pickle", command().display());
    Run::program("/bin/sh").native().arg("-c").arg(script).folder(&place.path).output().ok();
    assert_eq!(place.names(), ["5.pickle", "a.b.html", "cachealloc.html", "run"]);
}

/// The desktop's own program opens the report; here it is one that records the file to open.
#[test]
fn report_is_opened_on_request() {
    let place = planted();
    let bin = place.path.join("bin");
    fs::create_dir(&bin).expect("target/ is writable");
    let with = |path: &str| {
        cachealloc("report --force --open 2.pickle").folder(&place.path).env("PATH", path).output()
    };
    let ran = with("/nowhere");
    let why = "cachealloc: report: 2.html\ncachealloc: cannot start xdg-open: No such file or \
               directory (os error 2); open 2.html in a browser\n";
    assert_eq!((ran.stderr.as_str(), ran.code), (why, Some(1)));
    for (script, code) in [("#!/bin/sh\necho \"$1\" >opened\n", 0), ("#!/bin/sh\nexit 3\n", 1)] {
        let program = bin.join("xdg-open");
        fs::write(&program, script).expect("target/ is writable");
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, rights).expect("our file");
        let ran = with(&bin.display().to_string());
        assert_eq!(ran.code, Some(code), "{ran:?}");
    }
    let opened = fs::read_to_string(place.path.join("opened")).expect("it was started");
    let report = fs::canonicalize(place.path.join("2.html")).expect("the report");
    assert_eq!(opened, format!("{}\n", report.display()));
    let ran = run(&place, "report --open 2.pickle -o -");
    assert!(ran.stderr.contains("cannot use --open with -o -") && ran.code == Some(2), "{ran:?}");
}

#[test]
fn impossible_requests_are_explained() {
    let place = planted();
    let why = "cannot write nowhere/x.html: No such file or directory (os error 2); create the folder nowhere";
    failed(&run(&place, "report 2.pickle -o nowhere/x.html"), why);
    fs::write(place.path.join("text.pickle"), "text").expect("writable");
    let why = "text.pickle is not a snapshot: it does not begin like a pickle";
    failed(&run(&place, "report text.pickle"), why);
    assert!(!place.path.join("text.html").exists(), "no report of nothing");
    let ran = cachealloc("report").folder(&place.path).output();
    assert!(ran.stderr.contains("<FILE>..."), "{}", ran.stderr);
}

/// `report -o *.pickle`: the first snapshot would be the output file.
#[test]
fn no_snapshot_is_written_over() {
    let place = planted();
    let before = fs::read(place.path.join("2.pickle")).expect("the snapshot");
    for arguments in ["report -o 2.pickle 5.pickle", "convert 2.pickle --to json -o 2.pickle"] {
        let why = "cannot write to 2.pickle: it is an input snapshot; name the output file with -o";
        failed(&run(&place, arguments), why);
    }
    assert_eq!(fs::read(place.path.join("2.pickle")).expect("the snapshot"), before);
}

#[test]
fn report_is_complete_or_missing() {
    let place = planted();
    fs::write(place.path.join("a.html"), "what was there").expect("writable");
    // More than a file may have here.
    let limited = |limit| {
        let command = command().display().to_string();
        let script = format!(
            "trap '' XFSZ; ulimit -f {limit}; exec {command} report --force 2.pickle -o a.html"
        );
        Run::program("/bin/sh").native().arg("-c").arg(script).folder(&place.path).output()
    };
    let ran = limited("8");
    let why = "cachealloc: cannot write a.html: File too large (os error 27); name a file \
               elsewhere with -o\n";
    assert_eq!((ran.stderr.as_str(), ran.code), (why, Some(1)));
    let there = || fs::read_to_string(place.path.join("a.html")).expect("the file");
    assert_eq!((there().as_str(), place.names().len()), ("what was there", 3));
    limited("unlimited").ok();
    assert!(there().ends_with("</html>\n") && place.names().len() == 3, "{:?}", place.names());
}

#[test]
fn a_dash_is_stdin_or_stdout() {
    let place = planted();
    let page = said(&place, "report 2.pickle -o -");
    assert!(page.starts_with("<!DOCTYPE html>"), "{}", &page[..100]);
    let script = format!("{} top-sites - <2.pickle", command().display());
    let ran = Run::program("/bin/sh").native().arg("-c").arg(script).folder(&place.path).output();
    assert_eq!(ran.ok().stdout, said(&place, "top-sites 2.pickle"));
    assert_eq!(place.names(), ["2.pickle", "5.pickle"]);
}
