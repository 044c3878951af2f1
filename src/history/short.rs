//! Names of functions and paths, shortened for a line of text.

use std::borrow::Cow;

use cachealloc_text::cut;

use crate::frames::is_source;

/// Returns the informative end of a path: from the package on for a Python library, the file name
/// for a binary, else the file and its folder.
pub fn short_path(path: &str) -> &str {
    for packages in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, inside)) = path.rsplit_once(packages)
            && inside.len() <= PATH_CHARS_MAX
        {
            return inside;
        }
    }
    let parts = if is_source(path) { 2 } else { 1 };
    if path.starts_with('<') && path.len() <= PATH_CHARS_MAX {
        return path;
    }
    let short = match path.rmatch_indices('/').nth(parts - 1) {
        Some((slash, _)) => &path[slash + 1..],
        None => path,
    };
    // No file system has longer names. The end of a path tells most.
    match short.char_indices().rev().nth(PATH_CHARS_MAX) {
        Some((begin, _)) => &short[begin..],
        None => short,
    }
}

/// Returns a name without its arguments. If the name is long, the text in angle brackets is left
/// out too.
pub fn short_name(name: &str) -> Cow<'_, str> {
    let name = without_hash(name);
    if name.len() <= NAME_BYTES_GOOD && !name.contains('(') {
        return name.into();
    }
    let short = outside_of_brackets(name);
    let short = short.trim();
    match short.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &short[..end]).into(),
        None if short.is_empty() => cut(name, NAME_CHARS_MAX),
        None => short.to_string().into(),
    }
}

const NAME_BYTES_GOOD: usize = 40;
const NAME_CHARS_MAX: usize = 80;
const PATH_CHARS_MAX: usize = 500;

/// Removes the suffix of Rust's symbols: `::h` and 16 digits.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|it| it.is_ascii_hexdigit()) => {
            path
        }
        _ => name,
    }
}

/// Removes the text in angle brackets from a C++ name. Names that start with a bracket are Rust's
/// (`<T as Trait>::method`) or Python's.
fn outside_of_brackets(name: &str) -> String {
    if name.starts_with('<') {
        return name.to_string();
    }
    let name = name.replace("(anonymous namespace)", "{anonymous}");
    let name = name.replace("operator()", "operator{}").replace("->", "");
    let mut short = String::new();
    let mut depth = 0usize;
    for letter in name.chars() {
        let is_operator = short.ends_with("operator") || short.ends_with("operator<");
        match letter {
            '<' | '>' if depth == 0 && is_operator => short.push(letter),
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
    }
    short.replace("operator{}", "operator()").replace(" const", "")
}
