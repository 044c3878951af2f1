//! The `cachealloc` command, as people type it.

use std::path::PathBuf;

use cachealloc_tests::{Run, command};

mod doctor;
mod explain;
mod files;
mod fit;
mod generated;
mod gpus;
mod hostile;
mod limits;
mod live;
mod namespaces;
mod orders;
mod prometheus;
mod run;
mod screen;
mod snapshot;
mod steady;
mod taken;

/// Runs the command with these arguments, separated by spaces, without other preloaded libraries.
pub fn cachealloc(arguments: &str) -> Run {
    Run::program(command()).native().args(arguments)
}

/// `cachealloc run` with these flags, and a program.
pub fn under(flags: &str, program: impl Into<PathBuf>, arguments: &str) -> Run {
    cachealloc(&format!("run {flags} --")).arg(program.into()).args(arguments)
}

/// Replaces every number by `#` and runs of spaces by one space, which leaves what is the same
/// every time.
pub fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            digit if digit.is_ascii_digit() => {
                while let Some(next) = letters.peek()
                    && (next.is_ascii_digit() || matches!(next, '.'))
                {
                    letters.next();
                }
                // `1,234` is one number, and so are two columns.
                match masked.ends_with("#,") || masked.ends_with("# ") {
                    true => _ = masked.pop(),
                    false => masked.push('#'),
                }
            }
            ' ' if masked.ends_with(' ') => {}
            letter => masked.push(letter),
        }
    }
    masked.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
