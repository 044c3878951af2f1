//! The label of a frame in a line of a table. The machine-readable formats have the whole names.

use cachealloc_history::{is_source, short_path};

use super::ShortNames;
use crate::model::{Frame, Texts};

/// Returns `forward model.py:52`, or for a library without lines `cublasCreate
/// libcublas.so.12+0x3f2`.
pub fn label(texts: &Texts, frame: &Frame) -> String {
    label_with(&ShortNames::default(), texts, frame)
}

/// Returns [`label`] with a name that distinguishes instances of a template.
pub(super) fn label_with(names: &ShortNames, texts: &Texts, frame: &Frame) -> String {
    let name = names.short(texts.get(frame.name));
    let file = texts.get(frame.filename);
    let place = match (is_source(file), file) {
        (_, "") => String::new(),
        (true, _) => format!("{}:{}", short_path(file), frame.line),
        (false, _) => format!("{}+{:#x}", short_path(file), frame.line),
    };
    label_of(&name, &place)
}

/// Returns the label of a function and its place, either of which may be unknown.
pub fn label_of(name: &str, place: &str) -> String {
    match (name, place) {
        ("" | "??", "") => "unknown".to_string(),
        ("" | "??", place) => place.to_string(),
        (name, "") => name.to_string(),
        (name, place) => format!("{name} {place}"),
    }
}

/// Returns the JSON key for the number of a frame. An offset is never under `line`.
pub fn place_key(filename: &str) -> &'static str {
    if is_source(filename) { "line" } else { "offset" }
}
