//! The driver's functions, which each early thread looks up by itself.

use core::ffi::c_void;

use crate::driver::table;

const LAST: usize = 3;
const MISSING: usize = 2;

/// A thread that has called the driver knows all its functions, even if another thread is still
/// looking them up.
#[test]
fn thread_that_sees_one_function_sees_all() {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                // SAFETY: nothing is called.
                let first = unsafe { table::real::<*mut c_void>(0) };
                assert_eq!(first.addr(), usize::from(b'a'));
                assert!(table::has(LAST) && !table::has(MISSING));
                assert_eq!(table::known(first).map(|function| function.id), Some(0));
            });
        }
    });
}
