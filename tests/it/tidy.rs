//! What nobody wants to check by hand: the README's options are the real ones, `unsafe` stays
//! behind its fence, files stay readable.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 500;
const BEGIN: &str = "<!-- options: made from src/core/options, checked by a test -->\n";
const END: &str = "<!-- end of options -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `UPDATE_README=1 cargo test -p cachealloc-tests readme` writes the table.
#[test]
fn readme_has_the_options_table() {
    let path = root().join("README.md");
    let text = fs::read_to_string(&path).expect("README.md");
    let (before, rest) = text.split_once(BEGIN).expect("the begin of the options table");
    let (table, after) = rest.split_once(END).expect("the end of the options table");
    let wanted = cachealloc_core::options::help_markdown();
    if std::env::var_os("UPDATE_README").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).expect("README.md");
    } else {
        assert_eq!(table, wanted, "UPDATE_README=1 writes the table");
    }
}

#[test]
fn unsafe_stays_behind_its_fence() {
    // Of the command: the calls of the kernel that no safe wrapper offers.
    let fenced = |file: &PathBuf| !file.ends_with("cli/kernel.rs");
    let folders = ["core", "history", "analysis", "report", "cli"];
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

/// A test that skips says so by the one function that fails under CI.
#[test]
fn tests_are_skipped_by_one_function() {
    let own = root().join("tests/it/tidy.rs");
    let one = root().join("tests/skip.rs");
    let folders = ["src", "tests"].map(|folder| rust_files(&root().join(folder)));
    for file in folders.iter().flatten().filter(|file| **file != one && **file != own) {
        let text = fs::read_to_string(file).expect("a source file");
        let said = text.lines().find(|line| line.contains("println!(\"skipped"));
        assert_eq!(said, None, "{}: tests/skip.rs says it", file.display());
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
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
