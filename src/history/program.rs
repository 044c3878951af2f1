//! The name of a process for people: the program, or the script that an interpreter runs.

/// Returns the name, given the process's arguments, the first of which is the program. Other
/// arguments are not used: they may hold secrets, and snapshots are passed on.
pub fn program<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let mut arguments = arguments.into_iter();
    let program = file_name(arguments.next().unwrap_or_default());
    if !program.starts_with("python") {
        return program.to_string();
    }
    while let Some(argument) = arguments.next() {
        match argument {
            "-m" => return arguments.next().unwrap_or(program).to_string(),
            "-c" => break,
            // These two options take a value.
            "-W" | "-X" => drop(arguments.next()),
            option if option.starts_with('-') => {}
            script => return file_name(script).to_string(),
        }
    }
    program.to_string()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
