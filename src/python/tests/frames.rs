//! Every kind of Python frame, in every interpreter found: captured names, files, lines and
//! boundaries are compared with Python's own and with the native stack.

mod common;

#[test]
fn every_kind_of_frame() {
    common::run("frames.py");
}
