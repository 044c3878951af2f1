//! Wording that a reader stumbles over, counted in the comments of `src`: each count may only fall.
//!
//! The rules and better words for each are in `CONTRIBUTING.md`.

use std::fs;
use std::path::Path;

use cachealloc_tests::root;

/// What is counted, at most how often, and whether a line of comment has it.
type Pattern = (&'static str, usize, fn(&str) -> bool);

const PATTERNS: [Pattern; 12] = [
    ("\"behind\" for order", 2, |line| has_word(line, &["behind"])),
    ("a sentence that begins with \"Of\"", 0, |line| begins(line, &["Of "])),
    ("a sentence that begins with \"None:\"", 0, |line| {
        begins(line, &["None: ", "False: ", "True: "])
    }),
    ("a comment that continues another item's", 0, |line| {
        starts(line, &["And ", "But ", "Nor ", "Unless ", "Else ", "Likewise ", "Also "])
    }),
    ("a comment that is short for another", 1, |line| {
        starts(line, &["As in ", "As `", "The same "])
    }),
    ("something that is said, told or heard", 4, |line| {
        follows(line, &["is", "are", "was", "were", "be", "been"], &["said", "told", "heard"])
    }),
    ("\"natively\"", 0, |line| has_word(line, &["natively"])),
    ("a wait that is put off, owed or paid", 1, |line| {
        has_word(line, &["owe", "owes", "owed", "owing", "pays", "paid"])
            || line.contains("put off")
            || line.contains("puts off")
    }),
    ("memory that goes, comes or is given back", 5, |line| {
        let verbs = ["go", "goes", "gone", "come", "comes", "give", "gives", "given", "gave"];
        follows(line, &verbs, &["back"])
    }),
    ("\"for ever\", \"for good\"", 3, |line| follows(line, &["for"], &["ever", "good"])),
    ("archaic adverbs", 5, |line| {
        has_word(line, &["thereby", "thereof", "anew", "seldom", "beforehand", "nobody", "hardly"])
    }),
    ("a comment over 100 columns", 11, |line| line.chars().count() > 100),
];

#[test]
fn suspicious_wordings_only_get_fewer() {
    let mut lines = Vec::new();
    comments(&root().join("src"), &mut lines);
    let mut wrong = Vec::new();
    for (name, most, has) in PATTERNS {
        let found = lines.iter().filter(|(_, line)| has(line));
        let places: Vec<&str> = found.map(|(place, _)| place.as_str()).collect();
        if places.len() != most {
            let some = places.iter().take(5).copied().collect::<Vec<_>>().join(", ");
            wrong.push(format!("{name}: {}, not {most}: {some} ..", places.len()));
        }
    }
    assert!(wrong.is_empty(), "fewer: lower the count; more: reword\n{}", wrong.join("\n"));
}

/// Collects every comment line, with its place.
fn comments(folder: &Path, lines: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder").map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::path);
    for path in entries.into_iter().map(|entry| entry.path()) {
        if path.is_dir() {
            comments(&path, lines);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let name = path.strip_prefix(root()).expect("below").display().to_string();
            for (at, line) in text.lines().enumerate() {
                if line.trim_start().starts_with("//") {
                    lines.push((format!("{name}:{}", at + 1), line.to_string()));
                }
            }
        }
    }
}

/// The comment without its marker.
fn text(line: &str) -> &str {
    line.trim_start().trim_start_matches(['/', '!']).trim_start()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    text(line).split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '`')
}

fn has_word(line: &str, wanted: &[&str]) -> bool {
    words(line).any(|word| wanted.contains(&word.to_lowercase().as_str()))
}

/// Whether a word of the second list comes right after a word of the first.
fn follows(line: &str, first: &[&str], then: &[&str]) -> bool {
    let words: Vec<&str> = words(line).filter(|word| !word.is_empty()).collect();
    words.windows(2).any(|pair| first.contains(&pair[0]) && then.contains(&pair[1]))
}

/// Whether this line of a doc comment begins like this.
fn starts(line: &str, beginnings: &[&str]) -> bool {
    line.trim_start().starts_with("///") && beginnings.iter().any(|it| text(line).starts_with(it))
}

/// Whether a sentence in it begins like this.
fn begins(line: &str, beginnings: &[&str]) -> bool {
    let inside = |it: &&str| text(line).contains(&format!(". {it}"));
    beginnings.iter().any(|it| text(line).starts_with(it) || inside(it))
}
