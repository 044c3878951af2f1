//! Runs Python, the reference for the contents of a pickle.

use std::path::Path;
use std::process::{Command, Output};

pub fn run(arguments: &[&str], files: &[&Path]) -> Output {
    let mut python = Command::new("python3");
    python.args(arguments).args(files);
    python.output().expect("these tests need python3")
}

/// Runs a program that is expected to succeed.
pub fn expect(arguments: &[&str], files: &[&Path]) -> String {
    let output = run(arguments, files);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
