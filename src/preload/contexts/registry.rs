//! The contexts of the process, as lists that are read without a lock, however many there were: those
//! that are alive, and all. The newest is first, for that is the one that is looked for: a program
//! has one context, or works with the newest.
//!
//! A record is never deallocated, and one that has left the list of the living still leads to those
//! behind it: who is walking there meanwhile misses none of them.

use core::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::contexts::Context;
use crate::lock::lock;

type Link = AtomicPtr<Context>;

/// The places of a context in the lists.
#[derive(Default)]
pub struct Links {
    alive: Link,
    ever: Link,
}

static ALIVE: Link = Link::new(null_mut());
static EVER: Link = Link::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// For every change.
static CHANGING: Mutex<()> = Mutex::new(());

/// A context that was met just now.
pub fn push(context: &'static Context) {
    let _changing = lock(&CHANGING);
    let record = (context as *const Context).cast_mut();
    context.links.alive.store(ALIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    context.links.ever.store(EVER.load(Ordering::Relaxed), Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    EVER.store(record, Ordering::Release);
    ALIVE.store(record, Ordering::Release);
}

/// The context is gone.
pub fn remove_from_alive(context: &Context) {
    let _changing = lock(&CHANGING);
    let mut link = &ALIVE;
    // SAFETY: null, or a record, which lives for ever.
    while let Some(here) = unsafe { link.load(Ordering::Relaxed).as_ref() } {
        if core::ptr::eq(here, context) {
            link.store(here.links.alive.load(Ordering::Relaxed), Ordering::Release);
            return;
        }
        link = &here.links.alive;
    }
}

/// How many there were.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Those in the list of the living, the newest first.
#[inline]
pub fn alive() -> impl Iterator<Item = &'static Context> {
    Walk { link: &ALIVE, next: |links: &'static Links| &links.alive }
}

/// All that there were, the newest first.
pub fn ever() -> impl Iterator<Item = &'static Context> {
    Walk { link: &EVER, next: |links: &'static Links| &links.ever }
}

/// Looks no further than it was asked for: the first is mostly the one.
struct Walk<F> {
    link: &'static Link,
    next: F,
}

impl<F: Fn(&'static Links) -> &'static Link> Iterator for Walk<F> {
    type Item = &'static Context;

    #[inline]
    fn next(&mut self) -> Option<&'static Context> {
        // SAFETY: null, or a record, which lives for ever.
        let context = unsafe { self.link.load(Ordering::Acquire).as_ref() }?;
        self.link = (self.next)(&context.links);
        Some(context)
    }
}
