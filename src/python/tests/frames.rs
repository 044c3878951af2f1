//! Every kind of Python frame, in every interpreter found: our names, files, lines and boundaries
//! against Python's own and against the native stack.

mod common;

#[test]
fn every_kind_of_frame() {
    common::run("frames.py");
}
