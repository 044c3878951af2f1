//! Events, which are recorded again once nothing refers to them any more.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::api;
use crate::state::events::{self, EventRef, Events};
use crate::state::thread::Thread;
use crate::{ROUNDS, look_until};

/// The holder of a reference finds the recording that it refers to.
#[test]
fn events_are_not_recorded_again_too_early() {
    (0..ROUNDS).for_each(|_| record_again());
}

fn record_again() {
    let events: &'static Events = Box::leak(Box::default());
    // Only the count of references synchronizes the second thread with the first.
    let sent: [AtomicPtr<EventRef>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let here = Thread::new(1);
            for (place, what) in sent.iter().zip(1..) {
                let event = events.take(&here, |create| create()).expect("an event");
                api::event_record(event.handle(), what);
                place.store(Box::into_raw(Box::new(event.clone())), Ordering::Release);
                // By number, like the core.
                events::keep(event.id());
                drop(events::take_kept(event.id()));
                event.keep(&here);
            }
        });
        scope.spawn(|| {
            for (place, what) in sent.iter().zip(1..) {
                look_until(|| {
                    let event = place.swap(null_mut(), Ordering::Acquire);
                    if event.is_null() {
                        return false;
                    }
                    // SAFETY: sent once, to this thread alone.
                    let event = unsafe { Box::from_raw(event) };
                    assert_eq!(api::event_recorded(event.handle()), what);
                    true
                });
            }
        });
    });
}
