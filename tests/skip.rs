//! For a test that cannot do its work on this machine, because a tool or a right is missing.

/// Says so, and the caller returns. Under CI (`CI` is set: `.ci/run` sets it) it fails instead: everything
/// is installed there, and a test that finds nothing to do would pass for ever without a word.
#[track_caller]
pub fn skipped(why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!ci, "under CI no test is skipped: {why}");
    eprintln!("skipped: {why}");
}
