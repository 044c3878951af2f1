//! Checks of the source text: `unsafe` only in the permitted files, files of readable size,
//! comments that name their subject.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn unsafe_code_stays_in_its_crates() {
    // In the command: the system calls for which there is no safe wrapper.
    let fenced = |file: &PathBuf| {
        !file.ends_with("cli/kernel.rs") && !file.ends_with("cli/kernel/libraries.rs")
    };
    let folders = [
        "text",
        "core",
        "options",
        "statistics",
        "history",
        "foreign",
        "analysis",
        "fit",
        "report",
        "cli",
    ];
    let files = folders.iter().flat_map(|folder| rust_files(&root().join("src").join(folder)));
    for file in files.filter(fenced) {
        let text = fs::read_to_string(&file).expect("a source file");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code.filter(|line| line.contains("unsafe "));
        assert_eq!(found.count(), 0, "{}: unsafe", file.display());
    }
}

#[test]
fn files_stay_readable() {
    for folder in ["src", "tests"] {
        for file in rust_files(&root().join(folder)) {
            let lines = fs::read_to_string(&file).expect("a source file").lines().count();
            assert!(lines <= FILE_LINES_MAX, "{}: {lines} lines", file.display());
        }
    }
}

/// The Makefile runs scripts by their names.
#[test]
fn scripts_are_executable() {
    use std::os::unix::fs::PermissionsExt;
    for folder in ["scripts", "scripts/report", "scripts/package", "scripts/bench"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder").flatten() {
            let (path, mode) = (entry.path(), entry.metadata().expect("it exists").permissions());
            let begins = |text: Vec<u8>| text.starts_with(b"#!");
            if path.is_file() && fs::read(&path).is_ok_and(begins) {
                assert_ne!(mode.mode() & 0o111, 0, "{}: not executable", path.display());
            }
        }
    }
}

/// Both tiers run the tests of every crate, and the workspace contains each crate.
#[test]
fn the_tests_of_each_crate_are_run() {
    let text = |file: &str| fs::read_to_string(root().join(file)).expect("a text");
    let (makefile, workspace) = (text("Makefile"), text("Cargo.toml"));
    assert!(makefile.contains("ALL = $(CHECKED) --workspace "));
    for filter in ["\n", " -- --include-ignored"] {
        let command = format!("\tcargo test -q --no-fail-fast $(ALL){filter}");
        assert!(makefile.contains(&command), "no{command}");
    }
    for entry in fs::read_dir(root().join("src")).expect("a folder") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        assert!(workspace.contains(&format!("\"src/{name}\"")), "the workspace lacks src/{name}");
        // No test harness is built for a library without tests of its own.
        let own =
            rust_files(&folder).into_iter().filter(|file| !file.starts_with(folder.join("tests")));
        let mut texts = own.map(|file| fs::read_to_string(file).expect("a source file"));
        let has_tests = texts.any(|text| text.contains("#[test]"));
        assert!(
            !has_tests || !manifest.contains("\ntest = false\n"),
            "tests of src/{name} do not run"
        );
    }
}

/// Comments cite docs/ordering.md by section and by the number of a hazard, and that page cites its
/// tests.
#[test]
fn cited_documents_exist() {
    let contract = fs::read_to_string(root().join("docs/ordering.md")).expect("the contract");
    let sections: Vec<&str> =
        contract.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let hazards = contract.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let hazards: Vec<u32> = hazards.filter_map(|number| number.parse().ok()).collect();
    assert!(hazards.iter().copied().eq(1..=hazards.len() as u32), "hazards: {hazards:?}");
    let own = root().join("tests/it/tree/tidy.rs");
    let mut code = String::new();
    for folder in ["src", "tests"] {
        for file in rust_files(&root().join(folder)).into_iter().filter(|file| *file != own) {
            let text = fs::read_to_string(&file).expect("a source file");
            let at = file.display();
            for section in numbers_behind(&text, "docs/ordering.md ") {
                let found = sections.iter().any(|title| title.starts_with(&format!("{section}. ")));
                assert!(found, "{at}: docs/ordering.md has no section {section}");
            }
            for hazard in numbers_behind(&text, "hazard ").chain(numbers_behind(&text, "hazards "))
            {
                assert!(hazards.contains(&hazard), "{at}: docs/ordering.md has no hazard {hazard}");
            }
            assert!(!text.contains("DESIGN"), "{at}: cites what is not here");
            code.push_str(&text);
        }
    }
    let table =
        contract.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 2);
    for held_by in table.filter_map(|row| row.rsplit(" | ").next()) {
        for name in held_by.split('`').skip(1).step_by(2) {
            let exists = match name.contains('/') {
                true => ["", ".rs"].iter().any(|end| root().join(format!("{name}{end}")).exists()),
                false => code.contains(&format!("fn {name}(")),
            };
            assert!(exists, "docs/ordering.md: no test {name}");
        }
    }
}

/// Returns the numbers that follow these words, also in lists: `hazards 3, 29 and 40`.
fn numbers_behind<'a>(text: &'a str, words: &'a str) -> impl Iterator<Item = u32> + 'a {
    text.split(words).skip(1).flat_map(|rest| {
        let list =
            rest.split(|letter: char| !(letter.is_ascii_digit() || " ,and".contains(letter)));
        let list =
            list.take(1).flat_map(|list| list.split(|letter: char| !letter.is_ascii_digit()));
        list.filter_map(|number| number.parse().ok()).collect::<Vec<u32>>()
    })
}

/// The subject of a sentence about a machine is a thread, a process, a request or the like, not a
/// person. A doc comment says what a function returns, not what it answers.
#[test]
fn comments_name_their_subject() {
    const PERSONS: [&str; 10] = [
        "who",
        "whoever",
        "whom",
        "nobody",
        "somebody",
        "everybody",
        "anybody",
        "someone",
        "everyone",
        "anyone",
    ];
    let names_a_person = |text: &str| {
        let mut words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        words
            .find(|word| PERSONS.contains(&word.to_lowercase().as_str()) || *word == "Answers")
            .map(String::from)
    };
    let mut wrong = Vec::new();
    let mut check = |file: &Path, comment: fn(&str) -> &str| {
        let text = fs::read_to_string(file).expect("a text");
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(word) = names_a_person(comment(line)) {
                wrong.push(format!("{}:{number}: {word}: {}", file.display(), line.trim()));
            }
        }
    };
    rust_files(&root().join("src")).iter().for_each(|file| check(file, comment_of));
    for page in [
        "README.md",
        "CONTRIBUTING.md",
        "src/README.md",
        "docs/command.md",
        "docs/faq.md",
        "docs/graphs.md",
        "docs/interface.md",
        "docs/judge.md",
        "docs/options.md",
        "docs/ordering.md",
        "docs/recipes.md",
        "docs/safety.md",
        "docs/transparency.md",
    ] {
        check(&root().join(page), |line| line);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn comment_of(line: &str) -> &str {
    line.split_once("//").map_or("", |(_, comment)| comment)
}

/// A test that skips reports this through the one function that fails under CI.
#[test]
fn tests_are_skipped_by_one_function() {
    let own = root().join("tests/it/tree/tidy.rs");
    let one = root().join("tests/skip.rs");
    let folders = ["src", "tests"].map(|folder| rust_files(&root().join(folder)));
    for file in folders.iter().flatten().filter(|file| **file != one && **file != own) {
        let text = fs::read_to_string(file).expect("a source file");
        let said = text.lines().find(|line| line.contains("println!(\"skipped"));
        assert_eq!(said, None, "{}: tests/skip.rs says it", file.display());
    }
}

pub(super) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
