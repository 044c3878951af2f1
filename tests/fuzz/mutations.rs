//! Thousands of nearly valid snapshots, the same in every run. `FUZZ_SEED=n` makes others, and
//! `FUZZ_COUNT=n` sets their number.

use cachealloc_tests::tier;

use crate::files::FILES;
use crate::files::random::Random;
use crate::work::within_bounds;

/// Longer files add no variety.
const FILE_BYTES_MAX: usize = 40_000;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(part: u64) {
    // The work is split into four tests, which run concurrently.
    let (seed, count) =
        (number("FUZZ_SEED", 1), number("FUZZ_COUNT", tier::count(400, 20_000)) / 4);
    let mut readable = 0;
    for index in 0..count {
        let seed = (seed << 40) + (part << 32) + index;
        let file = mutated(&mut Random(seed));
        let done = std::panic::catch_unwind(|| within_bounds("mutated", &file));
        match done {
            Ok(said) => readable += u64::from(said.is_ok()),
            Err(panic) => {
                eprintln!("FUZZ_SEED={} FUZZ_COUNT={} part {part}", seed >> 40, 4 * (index + 1));
                std::panic::resume_unwind(panic);
            }
        }
    }
    // Otherwise only the reader has been tested.
    assert!(readable > count / 20, "{readable} of {count} are read");
}

#[test]
fn first_part() {
    run(0);
}

#[test]
fn second_part() {
    run(1);
}

#[test]
fn third_part() {
    run(2);
}

#[test]
fn fourth_part() {
    run(3);
}

#[test]
fn sound_files_are_read() {
    for file in &*FILES {
        assert_eq!(within_bounds("sound", file), Ok(()));
    }
}

/// Returns a valid file with a few changes: to bytes, after which little of it is meaningful, or
/// more often to whole opcodes, after which it is readable but odd. Sometimes it is a file of
/// opcodes in any order: underflows, marks, containers inside themselves.
fn mutated(random: &mut Random) -> Vec<u8> {
    let file = FILES[random.below(FILES.len() as u64) as usize].clone();
    let mut file = match random.below(10) {
        0..3 => bytes_changed(file, random),
        3 => opcodes_in_any_order(random),
        _ => opcodes_changed(&file, random),
    };
    file.truncate(FILE_BYTES_MAX);
    file
}

fn opcodes_changed(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut opcodes = opcodes(file);
    for _ in 0..1 + random.below(6) {
        let at = random.below(opcodes.len() as u64) as usize;
        let kind = opcodes[at][0];
        let alike: Vec<usize> = (0..opcodes.len()).filter(|&it| opcodes[it][0] == kind).collect();
        let other = alike[random.below(alike.len() as u64) as usize];
        match random.below(10) {
            // Another number, or another place in the memo.
            0..4 if b"KMJhj".contains(&kind) => {
                let byte = 1 + random.below(opcodes[at].len() as u64 - 1) as usize;
                opcodes[at][byte] =
                    [0, 1, 0x7f, 0xff, random.next() as u8][random.below(5) as usize];
            }
            // Another text, or another opcode of the same kind.
            0..7 => opcodes.swap(at, other),
            // A whole dict several times, or not at all.
            7..9 => {
                let begin = opcodes[..at].iter().rposition(|it| it[0] == b'}').unwrap_or(0);
                let Some(length) = opcodes[begin..].iter().position(|it| it[0] == b'u') else {
                    continue;
                };
                let dict: Vec<_> = opcodes[begin..=begin + length].to_vec();
                let times = [0, 2, 3, 50][random.below(4) as usize];
                opcodes.splice(begin..=begin + length, std::iter::repeat_n(dict, times).flatten());
            }
            _ => opcodes[at] = opcodes[other].clone(),
        }
        if opcodes.is_empty() {
            opcodes.push(vec![0x80, 2]);
        }
    }
    opcodes.concat()
}

/// Splits a file into opcodes, each with its arguments.
fn opcodes(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut opcodes = Vec::new();
    while let Some(&opcode) = file.first() {
        let byte = |at: usize| usize::from(file.get(at).copied().unwrap_or(0));
        let length = match opcode {
            b'h' | b'q' | b'K' | 0x80 => 2,
            b'M' => 3,
            b'J' | b'j' | b'r' => 5,
            b'G' | 0x95 => 9,
            0x8a | 0x8c => 2 + byte(1),
            b'X' => 5 + byte(1) + (byte(2) << 8),
            _ => 1,
        };
        let (this, rest) = file.split_at(length.min(file.len()));
        opcodes.push(this.to_vec());
        file = rest;
    }
    opcodes
}

fn opcodes_in_any_order(random: &mut Random) -> Vec<u8> {
    let count = random.below(60);
    let mut one = || OPCODES[random.below(OPCODES.len() as u64) as usize];
    let opcodes: Vec<u8> = (0..count).flat_map(|_| one().iter().copied()).collect();
    [&b"\x80\x02"[..], &opcodes, b"."].concat()
}

fn bytes_changed(mut file: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let files = &*FILES;
    let one = |random: &mut Random| &files[random.below(files.len() as u64) as usize];
    for _ in 0..1 + random.below(3) {
        let at = random.below(file.len() as u64) as usize;
        let end = file.len().min(at + 1 + random.below(100) as usize);
        match random.below(10) {
            0..4 => file[at] = random.below(256) as u8,
            4 => file[at] ^= 1 << random.below(8),
            5 => file.truncate(at.max(1)),
            6 => drop(file.drain(at..end)),
            7 => {
                let other = one(random);
                let from = random.below(other.len() as u64) as usize;
                let until = other.len().min(from + 1 + random.below(300) as usize);
                file.splice(at..end, other[from..until].iter().copied());
            }
            8 => {
                let opcode = OPCODES[random.below(OPCODES.len() as u64) as usize];
                file.splice(at..at, opcode.iter().copied());
            }
            _ => {
                // The largest possible number or length.
                let large: &[u8] =
                    [&[0xff; 1][..], &[0xff; 4], &[0xff; 8], &[0; 4]][random.below(4) as usize];
                let end = file.len().min(at + large.len());
                file.splice(at..end, large.iter().copied());
            }
        }
        if file.is_empty() {
            file.push(0x80);
        }
    }
    file
}

const OPCODES: [&[u8]; 31] = [
    b"(",
    b"}",
    b"]",
    b")",
    b"u",
    b"e",
    b"s",
    b"a",
    b"d",
    b"l",
    b"t",
    b"0",
    b"N",
    b"\x85",
    b"\x86",
    b"\x87",
    b"\x88",
    b"\x94",
    b"q\x00",
    b"h\x00",
    b"h\x01",
    b"h\x05",
    b"K\x05",
    b"J\xff\xff\xff\xff",
    b"\x8a\x00",
    b"\x8c\x08segments",
    b"\x8c\x0ddevice_traces",
    b"\x8c\x06blocks",
    b"\x8c\x04size",
    b"\x8c\x06action",
    b".",
];
