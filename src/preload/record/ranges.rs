//! Ranges: the phases of the program, under names that the program gives. A thread opens and closes
//! its ranges like brackets, and each entry of the history has the number of the innermost range
//! open in its thread.
//!
//! A number identifies a range and all around it, `step/forward`. Numbers are limited: once they
//! have run out, names that differ each time (`step 1234`) count as the range around them.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use cachealloc_history::NO_RANGE;

use crate::lists::hash::HashMap;
use crate::lock::lock;
use crate::record;

/// With names of 256 bytes, these take 4 MiB.
const RANGES_MAX: usize = 1 << 14;
const NAME_BYTES_MAX: usize = 256;
/// Ranges nested deeper count as the one around them.
const DEPTH_MAX: usize = 64;
/// Number of ranges that a thread finds again without the lock.
const KNOWN_MAX: usize = 1 << KNOWN_BITS;
const KNOWN_BITS: u32 = 4;

/// The open ranges of a thread.
struct Thread {
    /// The innermost range.
    now: Cell<u16>,
    /// Number of names in its path.
    names: Cell<u8>,
    /// The outermost range entered since the last entry, as the number of names in its path, or 0.
    entered: Cell<u8>,
    open: RefCell<Open>,
}

struct Open {
    depth: usize,
    /// For each open range, the range around it and the number of names in that one's path.
    around: [(u16, u8); DEPTH_MAX],
    known: [Known; KNOWN_MAX],
}

#[derive(Clone, Copy)]
struct Known {
    around: u16,
    name: &'static str,
    range: u16,
    /// A name with a slash counts as several.
    names: u8,
}

thread_local! {
    static THREAD: Thread = const {
        let nothing = Known { around: NO_RANGE, name: "", range: NO_RANGE, names: 0 };
        let around = [(NO_RANGE, 0); DEPTH_MAX];
        let open = RefCell::new(Open { depth: 0, around, known: [nothing; KNOWN_MAX] });
        let (names, entered) = (Cell::new(0), Cell::new(0));
        Thread { now: Cell::new(NO_RANGE), names, entered, open }
    };
}

/// Set once a range was entered while something was recorded.
static HAVE_BEEN: AtomicBool = AtomicBool::new(false);

/// All ranges so far. They are never removed, because entries contain their numbers.
pub(crate) struct Ranges {
    numbers: Option<HashMap<(u16, &'static str), u16>>,
    /// The range around each one, and its name; the first element has number 1.
    all: Vec<(u16, &'static str)>,
}

pub(crate) static ALL: Mutex<Ranges> = Mutex::new(Ranges { numbers: None, all: Vec::new() });

/// Returns whether there is nothing to do: nothing is recorded, and no range was ever entered while
/// something was recorded. Such a range must be left in its turn.
#[inline]
pub(crate) fn are_idle() -> bool {
    !record::is_on() && !HAVE_BEEN.load(Ordering::Relaxed)
}

/// Enters a range in the calling thread.
pub(crate) fn push(name: &[u8]) {
    THREAD.with(|Thread { now, names, entered, open }| {
        // A call by a signal handler that interrupts this function is ignored.
        let Ok(mut open) = open.try_borrow_mut() else { return };
        let open = &mut *open;
        if !record::is_on() && open.depth == 0 {
            return;
        }
        HAVE_BEEN.store(true, Ordering::Relaxed);
        let around = now.get();
        if let Some(place) = open.around.get_mut(open.depth) {
            *place = (around, names.get());
            let name = &name[..name.len().min(NAME_BYTES_MAX)];
            let known = &mut open.known[place_of(around, name)];
            let is_it = known.around == around && known.name.as_bytes() == name;
            // A range without a name counts as the range around it.
            if !is_it && !name.is_empty() {
                *known = lock(&ALL).known(around, &String::from_utf8_lossy(name));
            }
            if !name.is_empty() {
                let outside = names.get();
                if known.names > 0 && (entered.get() == 0 || entered.get() > outside) {
                    entered.set(outside.saturating_add(1));
                }
                names.set(outside.saturating_add(known.names));
                now.set(known.range);
            }
        }
        open.depth += 1;
    });
}

/// Leaves the innermost range of the calling thread.
pub(crate) fn pop() {
    if are_idle() {
        return;
    }
    THREAD.with(|Thread { now, names, open, .. }| {
        let Ok(mut open) = open.try_borrow_mut() else { return };
        let Some(depth) = open.depth.checked_sub(1) else { return };
        open.depth = depth;
        if let Some(around) = open.around.get(depth) {
            now.set(around.0);
            names.set(around.1);
        }
    });
}

/// Returns the ranges for the calling thread's next entry: the number of its innermost range, and
/// the outermost one that it has entered since its last entry
/// ([`Entry::entered`](cachealloc_history::Entry::entered)).
#[inline]
pub(crate) fn for_entry() -> (u16, u8) {
    if are_idle() {
        return (NO_RANGE, 0);
    }
    THREAD.with(|Thread { now, names, entered, .. }| {
        let outermost = entered.replace(0);
        // The range was left again, and nothing happened inside.
        (now.get(), if outermost > names.get() { 0 } else { outermost })
    })
}

impl Ranges {
    /// Returns the full names of all ranges, by number.
    pub(crate) fn texts(&self) -> Vec<String> {
        let mut texts = vec![String::new()];
        for (around, name) in &self.all {
            let around = texts.get(usize::from(*around)).map_or("", |text| text.as_str());
            let slash = if around.is_empty() { "" } else { "/" };
            texts.push(format!("{around}{slash}{name}"));
        }
        texts
    }

    fn known(&mut self, around: u16, name: &str) -> Known {
        let numbers = self.numbers.get_or_insert_default();
        let known: &HashMap<(u16, &str), u16> = numbers;
        if let Some(&range) = known.get(&(around, name)) {
            let name = self.all.get(usize::from(range) - 1).map_or("", |known| known.1);
            return Known { around, name, range, names: names_in(name) };
        }
        if self.all.len() == RANGES_MAX {
            return Known { around, name: "", range: around, names: 0 };
        }
        let name: &'static str = Box::leak(name.into());
        self.all.push((around, name));
        let range = self.all.len() as u16;
        numbers.insert((around, name), range);
        Known { around, name, range, names: names_in(name) }
    }
}

fn names_in(name: &str) -> u8 {
    let slashes = name.bytes().filter(|letter| *letter == b'/').count();
    u8::try_from(slashes + 1).unwrap_or(u8::MAX)
}

/// Hashes both ends of the name, its length, and the range around it, so that names of one nest
/// rarely collide.
#[inline]
fn place_of(around: u16, name: &[u8]) -> usize {
    let first = name.first_chunk().map_or(0, |begin| u32::from_le_bytes(*begin));
    let last = name.last_chunk().map_or(0, |end| u32::from_le_bytes(*end));
    let word = u64::from(first) << 32 ^ u64::from(last) ^ (name.len() as u64) << 56;
    let mixed = (word ^ u64::from(around) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - KNOWN_BITS)) as usize
}
