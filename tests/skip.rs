//! Skipping of a test that cannot run on this machine, because a tool or a permission is missing.

/// Whether this tool is on the path.
#[allow(dead_code)] // not every test that includes this file asks for tools
pub fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Returns whether the tool is missing, and prints so. The caller then returns.
#[track_caller]
#[allow(dead_code)] // as above
pub fn lacks(tool: &str) -> bool {
    if !has(tool) {
        skipped(&format!("{tool} is not installed"));
    }
    !has(tool)
}

/// Prints that the test is skipped; the caller then returns. Under CI (`.ci/run` sets `CI`) it
/// fails instead: all tools are installed there, and a skipped test would pass unnoticed.
#[track_caller]
#[allow(dead_code)] // as above
pub fn skipped(why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!ci, "under CI no test is skipped: {why}");
    eprintln!("skipped: {why}");
}
