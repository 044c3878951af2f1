//! Finds the file that a command line executes in the end: looks it up as a shell does, then
//! follows `#!` lines.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Exit codes of shells: the program does not exist, or cannot be executed.
pub(crate) const NOT_FOUND: u8 = 127;
pub(crate) const NOT_EXECUTABLE: u8 = 126;

/// Limit on nested interpreters: one script may be the interpreter of another.
const INTERPRETERS_MAX: usize = 5;
/// Number of bytes of a `#!` line that the kernel reads.
const LINE_BYTES_MAX: u64 = 256;
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Returns the file that the kernel loads for this command.
pub(crate) fn executable(command: &OsStr) -> Result<PathBuf, Failure> {
    let mut file = find(command)?;
    for _ in 0..INTERPRETERS_MAX {
        let Some(interpreter) = interpreter(&file)? else { return Ok(file) };
        file = find(&interpreter).map_err(|_| {
            let (script, interpreter) = (file.display(), interpreter.to_string_lossy());
            let (what, next) = match interpreter.ends_with('\r') {
                true => (
                    format!("{script} has Windows line endings"),
                    format!("fix them: sed -i 's/\\r$//' {script}"),
                ),
                false => (
                    format!("the interpreter {interpreter} of {script} is missing"),
                    "correct its first line".to_string(),
                ),
            };
            Failure::new(what).next(next).code(NOT_EXECUTABLE)
        })?;
    }
    let what = format!("{} has too many nested interpreters", command.to_string_lossy());
    Err(Failure::new(what).code(NOT_EXECUTABLE))
}

fn find(command: &OsStr) -> Result<PathBuf, Failure> {
    let shown = command.to_string_lossy();
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match fs::metadata(&path) {
            Ok(facts) if facts.is_file() && facts.permissions().mode() & 0o111 != 0 => Ok(path),
            Ok(facts) if facts.is_dir() => Err(Failure::new(format!("{shown} is a folder"))
                .next("name a program")
                .code(NOT_EXECUTABLE)),
            Ok(_) => Err(Failure::new(format!("{shown} is not executable"))
                .next(format!("make it executable with: chmod +x {shown}"))
                .code(NOT_EXECUTABLE)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(Failure::new(format!("this user cannot access the folder of {shown}"))
                    .next("check its permissions")
                    .code(NOT_EXECUTABLE))
            }
            Err(_) => Err(Failure::new(format!("{shown} does not exist"))
                .next("check the path")
                .code(NOT_FOUND)),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or(PATH_DEFAULT.into());
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(command));
    let mut present = candidates.filter(|file| file.is_file());
    present.find(|file| is_executable(file)).ok_or_else(|| {
        let next = match Path::new(command).is_file() {
            true => format!("did you mean ./{shown}?"),
            false => "check its name, or give its path".to_string(),
        };
        Failure::new(format!("no program {shown} in PATH")).next(next).code(NOT_FOUND)
    })
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|facts| facts.permissions().mode() & 0o111 != 0)
}

/// Returns the interpreter named by the file's first line, or `None` if the kernel or a shell
/// starts the file itself.
fn interpreter(file: &Path) -> Result<Option<OsString>, Failure> {
    let mut line = Vec::new();
    let read =
        fs::File::open(file).and_then(|file| file.take(LINE_BYTES_MAX).read_to_end(&mut line));
    if read.is_err() {
        return Ok(None); // executable but unreadable: left to the kernel
    }
    let Some(rest) = line.strip_prefix(b"#!") else { return Ok(None) };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Ok(None) };
    if Path::new(OsStr::from_bytes(first)).file_name() != Some(OsStr::new("env")) {
        return Ok(Some(OsString::from_vec(first.to_vec())));
    }
    // `env -S NAME=value python3 -u`: the first word that is neither an option nor a variable.
    let mut named = words.filter(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    Ok(named.next().map(|word| OsString::from_vec(word.to_vec())))
}
