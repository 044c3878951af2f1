//! Pinned memory is found by every address that refers to it, at any place among the arguments of a
//! kernel, and whatever other ranges begin and end meanwhile.

use crate::ROUNDS;
use crate::ordering::pinned;
use crate::stand_ins::driver::sys::CuError;

const MARGIN_BYTES: usize = 4096;

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() % end
    }
}

fn is_named_in(bytes: &[u8]) -> bool {
    // SAFETY: the bytes are a slice.
    unsafe { pinned::Look::now().is_named_in(bytes.as_ptr(), bytes.len()) }
}

/// The reference search by the rules, byte by byte: as many addresses as there are bytes.
fn is_named_plainly(bytes: &[u8], ranges: &[(usize, usize)]) -> bool {
    bytes.windows(8).any(|word| {
        let address = usize::from_le_bytes(word.try_into().expect("eight bytes"));
        ranges.iter().any(|(start, end)| {
            address >= start.saturating_sub(MARGIN_BYTES) && address <= end + MARGIN_BYTES
        })
    })
}

/// Places of pinned ranges: far apart, as in programs, and so that the bytes that distinguish them
/// differ.
const PLACES: [usize; 6] = [
    0x1000_0000,
    0x2_04c0_0000,
    0xff_ffe0_0000,
    0x2000_0000_0000,
    0x5555_5540_0000,
    0x7fff_f7c0_0000,
];

/// Ranges one after another in one process: an earlier range must not affect a later search.
#[test]
fn a_look_finds_what_a_plain_one_finds() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let (mut found, mut nothing) = (0, 0);
    for round in 0..ROUNDS * if cfg!(miri) { 20 } else { 400 } {
        if dice.below(3) == 0 && !ranges.is_empty() {
            let (start, _) = ranges.swap_remove(dice.below(ranges.len()));
            assert!(pinned::end_by(start, || Ok(())).is_ok());
        } else if ranges.len() < 8 {
            // Few places, so that ranges share pages; few starts are multiples of anything.
            let kinds = 1 + (round as usize / 64) % PLACES.len();
            let start = PLACES[dice.below(kinds)] + dice.below(1 << 24);
            let bits = dice.below(24);
            let end = start + 1 + dice.below(1 << bits);
            if ranges.iter().all(|(other, other_end)| end < *other || start > *other_end) {
                let code = if dice.below(4) == 0 { Err(CuError) } else { Ok(()) };
                let is_there = code.is_ok();
                match dice.below(2) {
                    0 if is_there => pinned::given(start, end - start),
                    _ => assert_eq!(
                        pinned::registered_by(start, end - start, || code).is_ok(),
                        is_there
                    ),
                }
                if is_there {
                    ranges.push((start, end));
                }
            }
        }
        for bytes in [8, dice.below(40), dice.below(300)] {
            let bytes = arguments(&mut dice, bytes, &ranges);
            let named = is_named_plainly(&bytes, &ranges);
            assert_eq!(pinned::any() && is_named_in(&bytes), named, "{ranges:x?} in {bytes:x?}");
            if named { found += 1 } else { nothing += 1 }
        }
        if let Some((start, end)) = ranges.last() {
            assert!(pinned::touches(*start, *start) && pinned::touches(end - 1, end + 9));
            assert!(pinned::is_named_by(end + MARGIN_BYTES));
        }
    }
    ranges.iter().for_each(|(start, _)| _ = pinned::end_by(*start, || Ok(())));
    assert!(found > 30 && nothing > 30, "{found} times something, {nothing} times nothing");
}

/// Returns `bytes` bytes of zeros, small numbers, addresses and random bytes, with an address near
/// a range at any offset in some of them.
fn arguments(dice: &mut Dice, bytes: usize, ranges: &[(usize, usize)]) -> Vec<u8> {
    let kind = dice.below(4);
    let mut all: Vec<u8> = (0..bytes.div_ceil(8))
        .flat_map(|_| {
            match kind {
                0 => 0,
                1 => dice.below(1000),
                2 => PLACES[dice.below(PLACES.len())] + dice.below(1 << 26),
                _ => dice.next(),
            }
            .to_le_bytes()
        })
        .take(bytes)
        .collect();
    if bytes >= 8 && !ranges.is_empty() && dice.below(2) == 0 {
        let (start, end) = ranges[dice.below(ranges.len())];
        let address = match dice.below(4) {
            0 => start - MARGIN_BYTES - dice.below(2),
            1 => end + MARGIN_BYTES + dice.below(2),
            _ => start + dice.below(end - start),
        };
        let at = dice.below(bytes - 7);
        all[at..at + 8].copy_from_slice(&address.to_le_bytes());
    }
    all
}

/// Ranges that begin and end in one page: the end of one hides no other.
#[test]
fn ending_ranges_hide_no_others() {
    // Far from the places of the other test, and from all numbers there.
    const PAGE: usize = 0x3b5d_7a80_0000;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let start = PAGE + thread * 0x4_0000;
                let bytes: Vec<u8> = [7, start + 3, 9].map(usize::to_le_bytes).concat();
                for _ in 0..ROUNDS * if cfg!(miri) { 1 } else { 100 } {
                    let found = || assert!(is_named_in(&bytes) && pinned::touches(start, start));
                    let registered = pinned::registered_by(start, 4096, || {
                        found();
                        Ok(())
                    });
                    assert!(registered.is_ok());
                    found();
                    assert!(pinned::end_by(start, || Err(CuError)).is_err());
                    found();
                    assert!(pinned::end_by(start, || Ok(())).is_ok());
                }
            });
        }
    });
}
