//! Keeps host memory for slots in proportion to the live blocks, not to the places where blocks
//! ever began.
//!
//! A page of slots takes memory once a block has begun there. The library counts how many blocks
//! begin in each page. One that becomes empty is listed. When `LISTED_MAX` others have become empty
//! since and it is still empty, it is returned to the system. A program whose blocks begin at the
//! same places again and again never gets that far.
//!
//! One word holds the whole state of a page, so that returning it and a block that begins there
//! exclude each other without a lock: a thread that counts a block waits while the page is leaving,
//! for one system call.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::lock::lock;
use crate::pagemap::Extent;
use crate::process::bounds;

/// Size of a system page, or a multiple of it: some aarch64 kernels have pages of 64 KiB.
pub(super) const PAGE_BYTES: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4 << 10 };
/// Number of empty pages that stay: 2 MiB of them.
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

/// State of one page.
#[derive(Default)]
pub(super) struct Page(AtomicU16);

impl Page {
    /// Counts a block that begins in the page. Call before its slot is written.
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

    /// Uncounts a block that has ended, after its slot was written. Returns whether that may have
    /// been the last one.
    #[inline(always)]
    fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Release) & COUNT <= 1
    }

    /// Lists the page after a block that was perhaps the last one. Returns whether the caller must
    /// list it.
    fn was_last(&self) -> bool {
        // Nothing is counted any more for a segment that was removed meanwhile.
        if self.0.load(Ordering::Relaxed) & COUNT == COUNT {
            self.0.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.0.fetch_or(LISTED, Ordering::Relaxed) & LISTED == 0
    }

    /// Unlists the page. Returns whether it is empty; then `Page::is_gone` must follow.
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

    /// Resets the page of a segment that was removed with all its blocks.
    pub(super) fn reset(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_and(LEAVING, Ordering::Relaxed);
        }
    }
}

/// Notes the end of a block of this extent that began in this page.
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
