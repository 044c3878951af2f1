//! Whose frame it is: Python's or native, and which frame of a stack names the call site.

use cachealloc_analysis::model::{Frame, Snapshot, StackId};

/// Whether the Python interpreter ran it.
pub fn is_python(snapshot: &Snapshot, frame: &Frame) -> bool {
    let filename = snapshot.texts.get(frame.filename);
    filename.ends_with(".py") || filename.starts_with('<')
}

/// The frame that a user looks for: the innermost line of Python that is no package's, or else the
/// innermost function that has a line, or else the innermost frame.
pub fn site_frame(snapshot: &Snapshot, stack: StackId) -> Option<Frame> {
    let frames = || snapshot.frames_of(stack);
    let filename = |frame: &Frame| snapshot.texts.get(frame.filename);
    let own_python =
        |frame: &&Frame| is_python(snapshot, frame) && !filename(frame).contains("site-packages");
    let with_line = |frame: &&Frame| {
        let file = filename(frame);
        !file.contains(".so") && file.rsplit('/').next().is_some_and(|name| name.contains('.'))
    };
    let found = frames().find(own_python).or_else(|| frames().find(with_line));
    found.or_else(|| frames().next()).copied()
}
