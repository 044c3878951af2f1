//! The same addresses as libgcc's unwinder, on every kind of frame that compilers emit.

mod common;

use common::{Library, build, compare, compared};

const SHAPES: [&str; 13] = [
    "plain",
    "many_registers",
    "dynamic_size",
    "realigned",
    "realigned_dynamic",
    "big",
    "huge",
    "virtuals",
    "exceptions",
    "tails",
    "sorted",
    "searched",
    "mixed",
];

/// Enables newer instructions of the processor.
const WIDE: &str =
    if cfg!(target_arch = "x86_64") { "-march=x86-64-v3" } else { "-march=armv8.2-a+sve" };
/// Enables marked jump targets, and on aarch64 also signed return addresses.
const PROTECTED: &str =
    if cfg!(target_arch = "x86_64") { "-fcf-protection" } else { "-mbranch-protection=standard" };

#[test]
fn shapes_of_frames_at_every_optimisation() {
    let all: [&[&str]; 6] = [
        &["-O0"],
        &["-O2"],
        &["-O3", WIDE],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-O2", "-fno-plt", PROTECTED],
        &["-Os"],
    ];
    for (index, flags) in all.iter().enumerate() {
        let Some(path) = build("deep.cpp", &format!("deep{index}"), flags) else { return };
        let library = Library::open(&path);
        for shape in SHAPES {
            for depth in [0, 1, 6, 41] {
                compared(|| library.run(shape, depth, compare));
            }
        }
    }
}

#[test]
fn recursion_in_rust_and_on_threads() {
    fn down(depth: u32) -> u32 {
        if depth == 0 {
            compare();
            return 0;
        }
        std::hint::black_box(down(std::hint::black_box(depth - 1)) + 1)
    }
    let threads: Vec<_> =
        (0..4).map(|index| std::thread::spawn(move || down(20 + index * 30))).collect();
    compared(|| assert_eq!(down(100), 100));
    for thread in threads {
        thread.join().unwrap();
    }
}
