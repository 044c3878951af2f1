//! A capture that knows the last walk of the thread returns the same as one that does not.

mod common;

use std::cell::{Cell, RefCell};
use std::hint::black_box;

use cachealloc_stacks::{LastWalk, Place, capture, capture_again, capture_places};
use common::{COMPARED, FRAMES_MAX, Library, NOTHING_HIDDEN, build, compared};

thread_local! {
    static LAST: Cell<Option<Box<LastWalk>>> = const { Cell::new(None) };
    /// The frames of the last walk, and the note that was made of them.
    static NOTED: RefCell<(u64, Vec<u64>)> = const { RefCell::new((0, Vec::new())) };
}

fn take_last() -> Box<LastWalk> {
    LAST.take().unwrap_or_else(LastWalk::new)
}

/// Captures this stack in both ways. The first address is in this function, where the calls differ.
#[inline(never)]
extern "C-unwind" fn compare_again() {
    let (mut anew, mut again) = ([0; FRAMES_MAX], [0; FRAMES_MAX]);
    let mut last = take_last();
    for room in [3, 12, FRAMES_MAX, FRAMES_MAX] {
        let first = capture(&mut anew[..room], NOTHING_HIDDEN);
        let second = capture_again(&mut again[..room], NOTHING_HIDDEN, Some(&mut last));
        assert_eq!(first, second);
        assert_eq!(anew[1..first.count], again[1..first.count]);
        check_note(&mut last, &again[..second.count]);
    }
    LAST.set(Some(last));
    COMPARED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// A note is there only after a walk with the same frames.
fn check_note(last: &mut LastWalk, frames: &[u64]) {
    NOTED.with_borrow_mut(|(note, noted)| {
        assert!(last.note() == 0 || (last.note(), frames) == (*note, noted));
        *note += 1;
        frames.clone_into(noted);
        last.set_note(*note);
    });
}

/// A loop captures the same frames each time, until one is another.
#[test]
fn a_note_stays_while_the_frames_do() {
    #[inline(never)]
    fn noted(last: &mut LastWalk) -> u64 {
        let mut out = [0; FRAMES_MAX];
        capture_again(&mut out, NOTHING_HIDDEN, Some(last));
        black_box(last.note())
    }
    #[inline(never)]
    fn deeper(last: &mut LastWalk) -> u64 {
        black_box(noted(last)) + black_box(0)
    }
    let (mut last, mut notes) = (LastWalk::new(), Vec::new());
    for _ in 0..black_box(4) {
        notes.push(noted(&mut last));
        last.set_note(7);
    }
    assert_eq!(notes, [0, 7, 7, 7]);
    assert_eq!(deeper(&mut last), 0);
    notes.clear();
    for _ in 0..black_box(3) {
        notes.push(deeper(&mut last));
    }
    assert_eq!(notes, [0; 3]);
}

/// Functions of the comparison with libgcc, in changing order and depth.
#[test]
fn shapes_of_frames_in_turn() {
    for flags in [["-O2", "-g"], ["-O2", "-fno-omit-frame-pointer"], ["-O0", "-g"]] {
        let name = format!("again{}", flags.concat());
        let Some(path) = build("deep.cpp", &name, &flags) else { return };
        let library = Library::open(&path);
        let shapes = ["plain", "realigned", "mixed", "tails", "dynamic_size", "huge"];
        for depth in [0, 1, 6, 41, 6, 5, 41, 40] {
            for shape in shapes {
                compared(|| library.run(shape, depth, compare_again));
            }
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % count
    }
}

/// Grows the stack by a frame of one of several sizes, and captures on the way down and up, between
/// which some frames stay and others have different words at the same place.
#[inline(never)]
fn wander<const BYTES: usize>(dice: &mut Dice, depth: u64) -> u64 {
    let room = black_box([depth as u8; BYTES]);
    let mut sum = u64::from(room[BYTES / 2]);
    if depth == 0 {
        compare_again();
        return sum;
    }
    for _ in 0..1 + dice.below(2) {
        sum += match dice.below(4) {
            0 => wander::<8>(dice, depth - 1),
            1 => wander::<64>(dice, depth - 1),
            2 => wander::<200>(dice, depth - 1) + 1,
            _ => {
                compare_again();
                wander::<64>(dice, depth - 1) + 1
            }
        };
        if dice.below(8) == 0 {
            compare_again();
        }
    }
    sum
}

#[test]
fn random_walks() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let depth = dice.below(11);
        compared(|| _ = black_box(wander::<8>(&mut dice, depth)));
    }
}

/// More frames than are kept, and again fewer.
#[test]
fn deep_stacks() {
    fn down(depth: u32) -> u32 {
        compare_again();
        if depth == 0 {
            return 0;
        }
        let sum = down(black_box(depth - 1)) + 1;
        if depth.is_multiple_of(16) {
            compare_again();
        }
        black_box(sum)
    }
    compared(|| assert_eq!(down(300), 300));
}

/// The place of another thread that has ended, whose stack was elsewhere or the same.
#[test]
fn threads_one_after_another() {
    let mut last = LastWalk::new();
    for round in 0..8 {
        let thread = std::thread::Builder::new().stack_size(64 << (round % 3) << 10);
        last = thread
            .spawn(move || {
                LAST.set(Some(last));
                compared(|| _ = black_box(wander::<8>(&mut Dice(round), 6)));
                take_last()
            })
            .unwrap()
            .join()
            .unwrap();
    }
}

/// A frame that a return address was changed in, as tools do that trace returns.
#[test]
fn a_changed_return_address_is_seen() {
    #[inline(never)]
    fn changed(frames: &mut [u64; 3]) {
        let mut out = [Place::default(); FRAMES_MAX];
        let count = capture_places(&mut out, NOTHING_HIDDEN).count;
        assert!(count > 4);
        let take = || {
            let (mut out, mut last) = ([0; FRAMES_MAX], take_last());
            capture_again(&mut out, NOTHING_HIDDEN, Some(&mut last));
            LAST.set(Some(last));
            out
        };
        let before = take();
        // The return address of the frame that called this one's caller lies below its place.
        let at = before.iter().position(|address| *address == out[3].address).unwrap();
        let word = (out[3].stack_pointer - 8) as *mut u64;
        if !cfg!(target_arch = "x86_64") {
            return;
        }
        // SAFETY: the word of a frame that is not returned to before it is restored.
        unsafe { assert_eq!(word.read_volatile(), out[3].address) };
        // SAFETY: as above.
        unsafe { word.write_volatile(out[3].address + 1) };
        let after = take();
        // SAFETY: as above.
        unsafe { word.write_volatile(out[3].address) };
        *frames = [before[at], after[at], out[3].address];
    }
    #[inline(never)]
    fn outer(frames: &mut [u64; 3]) -> u64 {
        changed(frames);
        black_box(frames[0])
    }
    #[inline(never)]
    fn outermost(frames: &mut [u64; 3]) -> u64 {
        outer(frames) + 1
    }
    let mut frames = [0; 3];
    black_box(outermost(black_box(&mut frames)));
    if cfg!(target_arch = "x86_64") {
        assert_eq!((frames[0], frames[1]), (frames[2], frames[2] + 1));
    }
}
