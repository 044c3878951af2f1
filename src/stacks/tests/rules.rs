//! Frames of every kind except the largest have a rule. The test is alone in its process: if
//! another thread loads a library meanwhile, a capture may be left to libgcc.

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
