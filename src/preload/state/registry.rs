//! The contexts of the process in two lists that are read without a lock: those alive, and all. The
//! newest comes first because it is the one usually requested: a program has one context, or works
//! with the newest.
//!
//! A record is never deallocated, and one removed from the list of the living still links to those
//! after it: a concurrent walk misses none.
//!
//! A program with hundreds of contexts uses them in turn. Those that were looked up last are found
//! by their id, without a walk.

use core::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::lists::recent::Recent;
use crate::lock::lock;
use crate::state::contexts::Context;

type Link = AtomicPtr<Context>;

/// The links of a context in the two lists.
#[derive(Default)]
pub(crate) struct Links {
    alive: Link,
    ever: Link,
}

static ALIVE: Link = Link::new(null_mut());
static EVER: Link = Link::new(null_mut());
/// The contexts last looked up, by id. An entry may have ended.
static RECENT: Recent<Context> = Recent::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Guards every change.
static CHANGING: Mutex<()> = Mutex::new(());

/// Adds a context that was just seen.
pub(crate) fn push(context: &'static Context) {
    let _changing = lock(&CHANGING);
    let record = (context as *const Context).cast_mut();
    context.links.alive.store(ALIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    context.links.ever.store(EVER.load(Ordering::Relaxed), Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    EVER.store(record, Ordering::Release);
    ALIVE.store(record, Ordering::Release);
}

/// Removes a context that has ended from the list of the living.
pub(crate) fn remove_from_alive(context: &Context) {
    let _changing = lock(&CHANGING);
    let mut link = &ALIVE;
    // SAFETY: null, or a record, which is never deallocated.
    while let Some(here) = unsafe { link.load(Ordering::Relaxed).as_ref() } {
        if core::ptr::eq(here, context) {
            link.store(here.links.alive.load(Ordering::Relaxed), Ordering::Release);
            return;
        }
        link = &here.links.alive;
    }
}

/// Returns how many contexts were ever seen.
pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Returns the newest living context.
#[inline]
pub(crate) fn newest() -> Option<&'static Context> {
    // SAFETY: null, or a record, which is never deallocated.
    unsafe { ALIVE.load(Ordering::Acquire).as_ref() }
}

/// Returns the living contexts, newest first.
#[inline]
pub(crate) fn alive() -> impl Iterator<Item = &'static Context> {
    Walk { link: &ALIVE, next: |links: &'static Links| &links.alive }
}

/// Returns a living context that `is_wanted`, which has this id.
pub(crate) fn recent(
    id: u64,
    is_wanted: impl Fn(&&'static Context) -> bool,
) -> Option<&'static Context> {
    let place = RECENT.at(id as usize);
    // SAFETY: null, or a record, which is never deallocated.
    if let Some(known) = unsafe { place.load(Ordering::Acquire).as_ref() }.filter(&is_wanted) {
        return Some(known);
    }
    let found = alive().find(is_wanted)?;
    place.store((found as *const Context).cast_mut(), Ordering::Release);
    Some(found)
}

/// Returns all contexts ever seen, newest first.
pub(crate) fn ever() -> impl Iterator<Item = &'static Context> {
    Walk { link: &EVER, next: |links: &'static Links| &links.ever }
}

/// A lazy walk: the first context is usually the requested one.
struct Walk<F> {
    link: &'static Link,
    next: F,
}

impl<F: Fn(&'static Links) -> &'static Link> Iterator for Walk<F> {
    type Item = &'static Context;

    #[inline]
    fn next(&mut self) -> Option<&'static Context> {
        // SAFETY: null, or a record, which is never deallocated.
        let context = unsafe { self.link.load(Ordering::Acquire).as_ref() }?;
        self.link = (self.next)(&context.links);
        Some(context)
    }
}
