//! Output generated from the definitions of the command: help, completions, manual pages, versions.

use std::fs;
use std::process::Command;

use cachealloc_options::OPTIONS;
use cachealloc_tests::root;

use super::cachealloc;
use crate::record::snapshots::Place;

const SUBCOMMANDS: [&str; 14] = [
    "run", "doctor", "snapshot", "recover", "record", "trim", "limit", "stats", "top", "report",
    "fit", "options", "explain", "find",
];

#[test]
fn completions_know_everything() {
    for shell in ["bash", "zsh", "fish"] {
        let text = cachealloc(&format!("completions {shell}")).output().ok().stdout;
        for word in SUBCOMMANDS.into_iter().chain(["free-mode", "relaxed", "--json", "interval"]) {
            let word = if shell == "fish" { word.trim_start_matches('-') } else { word };
            assert!(text.contains(word), "{shell}: {word}");
        }
        if shell == "bash" {
            let place = Place::new();
            let file = place.path.join("completions");
            fs::write(&file, text).expect("target/ is writable");
            let checked = Command::new("bash").arg("-n").arg(file).status();
            assert!(checked.expect("bash").success());
        }
    }
    let ran = cachealloc("completions tcsh").output();
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

/// Where a subcommand takes a process, those of `cachealloc top` are offered, and the killed ones
/// where it takes one of these.
#[test]
fn completions_know_processes() {
    let text = |shell: &str| cachealloc(&format!("completions {shell}")).output().ok().stdout;
    let place = Place::new();
    fs::write(place.path.join("completions"), text("bash")).expect("target/ is writable");
    let script = r#"
        cachealloc() {
            case "$1" in
                top) echo '[{"process":4711,"command":"./app {\"process\":99}"},{"process":12}]' ;;
                recover) printf '   4712  killed, 2 s ago, 1.00 MiB  /dev/shm/x\n' ;;
            esac
        }
        source ./completions
        for name in trim report recover; do
            COMP_WORDS=(cachealloc $name "") COMP_CWORD=2
            _cachealloc_or_process cachealloc "" $name
            echo $name: ${COMPREPLY[@]}
        done
        complete -p cachealloc"#;
    let ran = Command::new("bash").args(["-c", script]).current_dir(&place.path).output();
    let said = String::from_utf8(ran.expect("bash").stdout).expect("UTF-8");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("trim: ") && lines[0].ends_with(" 4711 12"), "{said}");
    assert!(lines[1].starts_with("report: ") && !lines[1].contains("4711"), "{said}");
    assert!(lines[2].starts_with("recover: ") && lines[2].ends_with(" 4712"), "{said}");
    assert!(!lines[2].contains("4711"), "{said}");
    assert!(lines[3].contains("-F _cachealloc_or_process "), "{said}");
    for (shell, wanted) in [
        ("zsh", ":process -- Process under the library:_cachealloc_process'"),
        ("zsh", "::left -- Killed process, or the file it left:_cachealloc_killed'"),
        ("fish", "__fish_seen_subcommand_from snapshot record trim limit stats"),
        ("fish", "__fish_seen_subcommand_from recover\" -a \"(__cachealloc_killed)"),
    ] {
        assert!(text(shell).contains(wanted), "{shell}");
    }
}

#[test]
fn manual_pages_know_everything() {
    let page = cachealloc("man").output().ok().stdout;
    assert!(page.starts_with(".TH \"CACHEALLOC\" \"1\""), "{page}");
    let place = Place::new();
    place.run(&cachealloc("man --folder .")).ok();
    for name in SUBCOMMANDS {
        assert!(page.contains(&format!("cachealloc\\-{name}(1)")), "{name}: {page}");
        assert!(place.names().contains(&format!("cachealloc-{name}.1")), "{:?}", place.names());
    }
    let read = |name: &str| fs::read_to_string(place.path.join(name)).expect("the page");
    let (run, overview) = (read("cachealloc-run.1"), read("cachealloc.7"));
    for row in OPTIONS.iter().filter(|row| !row.meaning.is_empty()) {
        assert!(run.contains(&row.key.replace('_', "\\-")), "{}: {run}", row.key);
        assert!(overview.contains(&format!("\n.B {}\n", row.key)), "{}: {overview}", row.key);
    }
    for what in ["CACHEALLOC_CONF", "CACHEALLOC_LIB", "LD_PRELOAD", "/dev/shm", "SIGUSR1", "125"] {
        assert!(overview.contains(&format!("\n.B {what}\n")), "{what}: {overview}");
    }
    let report = read("cachealloc-report.1");
    assert!(report.contains("\ncachealloc report [OPTIONS] <FILE>...\n"), "{report}");
}

/// The pages have the order of man(7), and use nothing that its language lacks.
#[test]
fn manual_pages_have_the_usual_sections() {
    const ORDER: [&str; 12] = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "\"OPTIONS OF THE LIBRARY\"",
        "COMMANDS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "FILES",
        "SIGNALS",
        "EXAMPLES",
        "SEE ALSO",
    ];
    const MACROS: [&str; 15] = [
        ".TH", ".SH", ".PP", ".TP", ".B", ".nf", ".fi", ".br", ".RS", ".RE", ".IP", ".ie", ".el",
        ".ds", ".I",
    ];
    let place = Place::new();
    place.run(&cachealloc("man --folder .")).ok();
    for name in place.names() {
        let page = fs::read_to_string(place.path.join(&name)).expect("the page");
        let titles = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        let places: Vec<_> = titles
            .map(|title| {
                let place = ORDER.iter().position(|known| *known == title);
                place.unwrap_or_else(|| panic!("{name}: {title}"))
            })
            .collect();
        assert!(places.is_sorted() && places.len() >= 5, "{name}: {places:?}");
        for line in page.lines().filter(|line| line.starts_with('.')) {
            let word = line.split(' ').next().expect("a word");
            assert!(MACROS.contains(&word), "{name}: {line}");
        }
        assert!(!page.contains("\n\n\n"), "{name}");
        assert!(!page.contains("\\*("), "{name}: a string that is not defined");
    }
}

#[test]
fn subcommands_have_help() {
    let help = cachealloc("--help").output().ok().stdout;
    for name in SUBCOMMANDS {
        assert!(help.contains(&format!("\n  {name} ")), "{help}");
        cachealloc(&format!("{name} --help")).output().ok();
    }
    let summaries = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in summaries.take_while(|line| !line.is_empty()) {
        let summary = line.trim_start().split_once("  ").expect("a name, then a summary").1.trim();
        assert!(summary.len() <= 72 && !summary.ends_with('.'), "too long: {line}");
    }
    assert_eq!(cachealloc("").output().code, Some(2));
}

#[test]
fn options_are_found_by_a_word() {
    let all = cachealloc("options").output().ok().stdout;
    let missing = OPTIONS.iter().find(|row| !all.contains(&format!("\n{}  (", row.key)));
    assert!(missing.is_none(), "{:?}", missing.map(|row| row.key));
    let flag = cachealloc("options FLAGS_allocator_strategy=auto_growth").output().ok().stdout;
    let wanted = "FLAGS_allocator_strategy belongs to Paddle and is ignored; in CACHEALLOC_CONF strategy:auto_growth \
                  is equivalent\n";
    assert_eq!(flag, wanted);
    let one = cachealloc("options --free-mode").output().ok().stdout;
    assert!(one.contains("\nfree_mode  (word, default: ordered)\n"), "{one}");
    assert!(!one.contains("\nstrategy"), "{one}");
    for (word, wanted) in [
        ("recrod", "no option contains \"recrod\"; did you mean record?"),
        ("zzz", "no option contains \"zzz\"; list all options with: cachealloc options"),
    ] {
        let ran = cachealloc(&format!("options {word}")).output();
        assert_eq!((ran.stderr, ran.code), (format!("cachealloc: {wanted}\n"), Some(1)));
    }
}

/// Library (`header::versions`), command, header, change log and package have the same version.
#[test]
fn there_is_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let said = cachealloc("--version").output().ok().stdout;
    assert_eq!(said, format!("cachealloc {version}\n"));
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a file");
    let header = read("include/cachealloc.h");
    assert!(header.contains(&format!("#define CACHEALLOC_VERSION \"{version}\"")), "the header");
    let changes = read("CHANGELOG.md");
    let latest = changes.lines().find(|line| line.starts_with("## ")).expect("a release");
    assert!(latest.starts_with(&format!("## {version}")), "{latest}");
}
