//! The documents: links lead somewhere, the README is short enough to be read to its end, its
//! numbers are measured ones, and the options are the real ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cachealloc_tests::root;

const BEGIN: &str = "<!-- options: made from src/options, checked by a test -->\n";
const END: &str = "<!-- end of options -->";
const README_LINES_MAX: usize = 150;

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents() -> Vec<PathBuf> {
    documents_in(&root())
}

fn documents_in(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "src/README.md"]
        .map(|name| folder.join(name))
        .into();
    for entry in fs::read_dir(folder.join("docs")).expect("docs").flatten() {
        all.push(entry.path());
    }
    // Some documents have another form in a package.
    all.retain(|path| path.extension().is_some_and(|end| end == "md") && path.exists());
    all
}

/// Returns the lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// `UPDATE_OPTIONS=1 cargo test -p cachealloc-tests options_table` writes the table.
#[test]
fn the_options_table_is_the_real_one() {
    let path = root().join("docs/options.md");
    let text = read(&path);
    let (before, rest) = text.split_once(BEGIN).expect("the begin of the options table");
    let (table, after) = rest.split_once(END).expect("the end of the options table");
    let wanted = cachealloc_options::help_markdown();
    if std::env::var_os("UPDATE_OPTIONS").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).expect("it is writable");
    } else {
        assert_eq!(table, wanted, "UPDATE_OPTIONS=1 writes the table");
    }
}

/// Returns the link anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_lead_somewhere() {
    links_lead_somewhere_in(&root());
}

/// Checks the documents of the tree or of a package. Paths are relative to the document that
/// contains them.
pub(crate) fn links_lead_somewhere_in(folder: &Path) {
    let mut wrong = Vec::new();
    let mut found = 0;
    for document in documents_in(folder) {
        let text = read(&document);
        let links = prose(&text).flat_map(|line| line.split("](").skip(1));
        for link in links.filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            found += 1;
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().expect("a folder").join(path),
            };
            let leads =
                target.exists() && (place.is_empty() || anchors(&read(&target)).contains(place));
            if !leads {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found > 20, "{found} links only: are they found at all?");
}

/// Each document is named in the README, which is short, begins to be useful with `run`, and states
/// early what it costs.
#[test]
fn the_readme_is_read_to_its_end() {
    let text = read(&root().join("README.md"));
    let lines = text.lines().count();
    assert!(lines <= README_LINES_MAX, "{lines} lines");
    let costs = text.lines().position(|line| line == "## What it costs, and what differs");
    assert!(costs.is_some_and(|line| 2 * line <= lines), "in the first half: {costs:?}");
    for command in ["make demo", "make test", "cachealloc run ", "cachealloc doctor "] {
        assert!(text.contains(&format!("\n{command}")), "{command}");
    }
    let start = text.split_once("## Quick start\n").and_then(|(_, rest)| rest.split_once("```\n"));
    assert!(start.is_some_and(|(_, block)| block.starts_with("cachealloc run -- ")));
    for document in documents().iter().filter(|path| path.parent() == Some(&root().join("docs"))) {
        let name = document.file_name().expect("a name").to_string_lossy();
        assert!(text.contains(&format!("(docs/{name}")), "docs/{name} is not named");
    }
}

/// Returns the external crates that a manifest names.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut crates = BTreeSet::new();
    let mut here = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            here = line.ends_with("dependencies]");
        } else if here
            && let Some((name, value)) = line.split_once(" = ")
            && !value.contains("path = ")
        {
            crates.insert(name.to_string());
        }
    }
    crates
}

/// The table's first column lists them, several in a cell.
#[test]
fn dependencies_are_those_of_the_manifests() {
    let text = read(&root().join("docs/dependencies.md"));
    let (_, table) = text.split_once("# Dependencies\n").expect("the table");
    let rows = table.lines().skip(1).skip_while(|line| line.is_empty());
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let listed: BTreeSet<String> =
        cells.flat_map(|cell| cell.split([',', ';'])).map(|name| name.trim().to_string()).collect();
    let mut used = BTreeSet::new();
    for folder in ["", "src", "tests"] {
        let folder = root().join(folder);
        let inside = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
        for manifest in inside.chain([folder.clone()]).map(|path| path.join("Cargo.toml")) {
            if manifest.is_file() {
                used.extend(dependencies(&read(&manifest)));
            }
        }
    }
    assert_eq!(listed, used);
}

/// Returns the numbers before a unit of time or memory, or alone in a cell.
fn measured(text: &str) -> BTreeSet<String> {
    const UNITS: [&str; 7] = ["ns", "us", "ms", "s", "MB", "GB", "times"];
    let mut numbers = BTreeSet::new();
    for line in prose(text) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let word = word.trim_matches(|letter: char| !letter.is_ascii_digit());
            let next = words.get(at + 1).map(|it| it.trim_matches(|c: char| !c.is_alphabetic()));
            let in_cell = at > 0 && words[at - 1] == "|" && words.get(at + 1) == Some(&"|");
            let counts = next.is_some_and(|next| UNITS.contains(&next)) || in_cell;
            if counts && word.starts_with(|letter: char| letter.is_ascii_digit()) {
                numbers.insert(word.to_string());
            }
        }
    }
    numbers
}

#[test]
fn numbers_of_the_readme_were_measured() {
    let numbers = measured(&read(&root().join("README.md")));
    let figures = read(&root().join("docs/figures.md"));
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '.');
    let known: BTreeSet<&str> = figures
        .split(|letter: char| !is_part(letter))
        .map(|number| number.trim_matches([',', '.']))
        .collect();
    let unknown: Vec<_> = numbers.iter().filter(|it| !known.contains(it.as_str())).collect();
    assert!(unknown.is_empty(), "not in docs/figures.md: {unknown:?}");
    for number in ["1,924", "38", "56", "0.26", "1.038"] {
        assert!(numbers.contains(number), "{number} is not found in the README: {numbers:?}");
    }
}

const FIGURES_LINES_MAX: usize = 250;

/// Every table of figures is followed by a paragraph that names the machine and the commit. Commits
/// are named nowhere else.
#[test]
fn figures_name_the_commit_that_was_measured() {
    let figures = read(&root().join("docs/figures.md"));
    let lines = figures.lines().count();
    assert!(
        lines <= FIGURES_LINES_MAX,
        "{lines} lines: one table for each subject, the newest figures only"
    );
    let paragraphs: Vec<&str> = figures.split("\n\n").collect();
    let mut tables = 0;
    for (at, paragraph) in paragraphs.iter().enumerate() {
        if paragraph.starts_with('|') {
            tables += 1;
            let below = paragraphs.get(at + 1).copied().unwrap_or("");
            assert!(below.starts_with("Measured "), "below a table: {below}");
            assert!(words(below).any(is_commit), "no commit: {below}");
        }
        let named = words(paragraph).find(|word| is_commit(word));
        assert!(named.is_none() || paragraph.starts_with("Measured "), "{named:?} in: {paragraph}");
    }
    assert!(tables > 10, "{tables} tables only: are they found at all?");
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric())
}

/// A number of seven digits is written with commas, and a word of seven letters from a to f is no
/// commit.
fn is_commit(word: &str) -> bool {
    let is_hexadecimal = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    (7..=8).contains(&word.len())
        && word.bytes().all(is_hexadecimal)
        && word.bytes().any(|digit| digit.is_ascii_digit())
        && word.bytes().any(|digit| digit.is_ascii_alphabetic())
}
