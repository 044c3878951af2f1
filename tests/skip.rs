//! For a test that cannot do its work on this machine, because a tool or a right is missing.

/// Whether this tool is on the path.
#[allow(dead_code)] // not every test that includes this file asks for tools
pub fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Whether it is missing, which is said; the caller returns then.
#[track_caller]
#[allow(dead_code)] // as above
pub fn lacks(tool: &str) -> bool {
    if !has(tool) {
        skipped(&format!("{tool} is not installed"));
    }
    !has(tool)
}

/// Says so, and the caller returns. Under CI (`CI` is set: `.ci/run` sets it) it fails instead: everything
/// is installed there, and a test that finds nothing to do would pass for ever without a word.
#[track_caller]
#[allow(dead_code)] // as above
pub fn skipped(why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!ci, "under CI no test is skipped: {why}");
    eprintln!("skipped: {why}");
}
