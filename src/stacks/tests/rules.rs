//! Frames of every kind but the largest have a rule of ours. Alone in its process: what another thread loads
//! at the same time may leave a capture to libgcc.

mod common;

use cachealloc_stacks::fallbacks;
use common::{Library, build, compare, compared};

#[test]
fn no_stack_is_left_to_libgcc() {
    for level in ["-O0", "-O2"] {
        let name = format!("ruled{level}");
        let Some(path) = build("deep.cpp", &name, &[level]) else { return };
        let library = Library::open(&path);
        let before = fallbacks();
        for shape in ["plain", "many_registers", "dynamic_size", "realigned", "big", "exceptions"] {
            compared(|| library.run(shape, 6, compare));
        }
        assert_eq!(fallbacks(), before, "{level}");
    }
}
