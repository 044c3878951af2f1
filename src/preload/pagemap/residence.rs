//! Host memory for slots follows the blocks that live, not the places where blocks ever began.
//!
//! A page of slots is memory once a block has begun there. It is counted how many blocks begin in each; one that
//! becomes empty is listed, and when `LISTED_MAX` others have become empty since and it still is, the system gets it
//! back. A program whose blocks begin at the same places again and again never gets so far.
//!
//! A word says all of one page, so that giving it back and a block that begins there exclude each other without a lock: a
//! thread that counts a block waits while the page is leaving, for one system call.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::lock::lock;
use crate::pagemap::Extent;
use crate::process::bounds;

/// What the system gives and takes at once, or a multiple of it: some aarch64 kernels have pages of 64 KiB.
pub(super) const PAGE_BYTES: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4 << 10 };
/// Empty pages that stay: 2 MiB of them.
const LISTED_MAX: usize = (2 << 20) / PAGE_BYTES;

const COUNT: u16 = (1 << 14) - 1;
const LISTED: u16 = 1 << 14;
const LEAVING: u16 = 1 << 15;

/// Pages in the order in which they became empty.
struct Listed {
    pages: [Option<(&'static Extent, usize)>; LISTED_MAX],
    next: usize,
}

static LISTED_PAGES: Mutex<Listed> = Mutex::new(Listed { pages: [None; LISTED_MAX], next: 0 });

/// One page's state.
#[derive(Default)]
pub(super) struct Page(AtomicU16);

impl Page {
    /// A block begins in it. Call before its slot is written.
    #[inline(always)]
    pub(super) fn enter(&self) {
        if self.0.fetch_add(1, Ordering::Acquire) & LEAVING != 0 {
            self.has_left();
        }
    }

    #[cold]
    fn has_left(&self) {
        bounds::until(|| self.0.load(Ordering::Acquire) & LEAVING == 0);
    }

    /// A block in it has ended, and its slot is written. Returns whether that may have been the last one.
    #[inline(always)]
    fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Release) & COUNT <= 1
    }

    /// That block was perhaps the last one. Returns whether the page is to be listed.
    fn was_last(&self) -> bool {
        // Of a segment that has gone meanwhile nothing is counted any more.
        if self.0.load(Ordering::Relaxed) & COUNT == COUNT {
            self.0.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.0.fetch_or(LISTED, Ordering::Relaxed) & LISTED == 0
    }

    /// It is listed no longer. Returns whether it is empty; then `Page::is_gone` must follow.
    fn unlist(&self) -> bool {
        let next = |word: u16| match word & COUNT {
            _ if word & LEAVING != 0 => None,
            0 => Some(LEAVING),
            _ => Some(word & !LISTED),
        };
        let before = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, next);
        before.is_ok_and(|word| word & COUNT == 0)
    }

    fn is_gone(&self) {
        self.0.fetch_and(!LEAVING, Ordering::Release);
    }

    /// Its segment has gone, and with it all blocks.
    pub(super) fn reset(&self) {
        self.0.fetch_and(LEAVING, Ordering::Relaxed);
    }
}

/// A block of this extent has ended, which began in this page.
#[inline(always)]
pub(super) fn left(extent: &'static Extent, page: usize) {
    if extent.page(page).leave() {
        may_be_empty(extent, page);
    }
}

#[cold]
#[inline(never)]
fn may_be_empty(extent: &'static Extent, page: usize) {
    if !extent.page(page).was_last() {
        return;
    }
    let mut listed = lock(&LISTED_PAGES);
    let at = listed.next;
    listed.next = (at + 1) % LISTED_MAX;
    let oldest = listed.pages[at].replace((extent, page));
    drop(listed);
    if let Some((extent, page)) = oldest
        && extent.page(page).unlist()
    {
        extent.forget(page);
        extent.page(page).is_gone();
    }
}
