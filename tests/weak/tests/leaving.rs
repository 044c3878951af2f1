//! The intrusive stack, to which any thread pushes and from which one thread takes all.

use std::ptr::null_mut;

use crate::ROUNDS;
use crate::lists::intrusive_stack::{IntrusiveStack, Linked};

struct Thing {
    written: u64,
    next: *mut Thing,
}

impl Linked for Thing {
    unsafe fn next(this: *mut Thing) -> *mut *mut Thing {
        // SAFETY: valid, by the caller's word.
        unsafe { &raw mut (*this).next }
    }
}

#[test]
fn pushed_items_are_complete() {
    (0..ROUNDS).for_each(|_| leave());
}

fn leave() {
    static LEFT: IntrusiveStack<Thing> = IntrusiveStack::new();
    let mut taken = 0;
    let mut take = || {
        let mut thing = LEFT.take_all();
        while !thing.is_null() {
            // SAFETY: pushed once, by a thread that has given up ownership.
            let whole = unsafe { Box::from_raw(thing) };
            assert!((1..=3).contains(&whole.written));
            taken += 1;
            thing = whole.next;
        }
    };
    std::thread::scope(|scope| {
        for number in 1..=3 {
            scope.spawn(move || {
                let thing = Box::into_raw(Box::new(Thing { written: 0, next: null_mut() }));
                // SAFETY: just made; not used again.
                unsafe {
                    (*thing).written = number;
                    LEFT.push(thing);
                }
            });
        }
        take();
        take();
    });
    take();
    assert!(LEFT.is_empty());
    assert_eq!(taken, 3);
}
