//! The description of its own layout that an interpreter from 3.13 on publishes for debuggers: a
//! block of words at the start of `_PyRuntime` (`_Py_DebugOffsets`).
//!
//! Each version adds fields to the block, and nothing in the block gives their positions. But each
//! group of fields has a unique shape: adjacent objects in a structure, words of known sizes. A
//! group is accepted if its shape is found at exactly one place. So a new version that keeps these
//! shapes needs no new table. If a shape is missing or found at two places, the whole block is
//! rejected.
//!
//! Sources: `pycore_runtime.h` of 3.13.5, `pycore_debug_offsets.h` of 3.14.4, and that file from
//! the sources after 3.14, which no test here has run.

use crate::layout::{Code, Copies, First, Frames, Internal, Layout, LineFormat, Objects, Text};

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// Number of words that are examined: the block of 3.14 has 90, and other parts of the runtime
/// follow.
pub(crate) const WORDS_COUNT: usize = 128;
/// Size limit: every structure of the interpreter that frames lead to is smaller.
const OFFSET_END: u64 = 1 << 16;

type Words = [u64; WORDS_COUNT];

/// Returns the layout that these words describe, or the reason why they are rejected.
pub(crate) fn layout(version: (u8, u8), words: &Words) -> Result<Layout, &'static str> {
    if words[0] != COOKIE || words[1] >> 16 != u64::from(version.0) << 8 | u64::from(version.1) {
        return Err("it does not publish its offsets");
    }
    let shared = words[2] != 0;
    described(version, shared, words).ok_or("what it publishes has no known shape")
}

/// Returns whether the interpreter was built without its lock.
pub(crate) fn is_shared(words: &Words) -> bool {
    words[2] != 0
}

fn described(version: (u8, u8), shared: bool, words: &Words) -> Option<Layout> {
    let object_bytes: u64 = if shared { 32 } else { 16 };
    let class = object_bytes - 8;
    // size, filename, name, qualname, linetable: four adjacent objects.
    let code_at = only(words, 0, |it| {
        let first = it[1];
        it[2..5] == [first + 8, first + 16, first + 24] && it[9] > it[4] && it[9] <= it[0]
    })?;
    // size, previous, executable, instr_ptr, localsplus, owner: the code comes first, then the frame before.
    let frame_at = only(&words[..code_at], 0, |it| {
        it[1..3] == [8, 0] && it[4] > it[3] && (it[3]..it[4]).contains(&it[5]) && it[0] >= it[4]
    })?;
    // size, prev, next, interp, current_frame: three pointers in front.
    let state_at = only(&words[..frame_at], 3, |it| {
        it[1..4] == [0, 8, 16] && it[4] > 16 && it[4] < it[0] && it[4].is_multiple_of(8)
    })?;
    let behind = &words[code_at + CODE_FIELDS_MIN..];
    // pyobject: size, ob_type; type_object: size, tp_name, tp_repr, tp_flags. The head has a length, too.
    let object_at = only(behind, 0, |it| {
        it[..2] == [object_bytes, class] && it[3] == object_bytes + 8 && it[5] < it[2]
    })?;
    let objects = &behind[object_at..];
    // bytes: size, ob_size, ob_sval (after the hash); unicode: size, state, length,
    // asciiobject_size.
    let text_at = only(objects, 3, |it| {
        it[1..4] == [object_bytes + 16, object_bytes, object_bytes + 24]
            && it[0] > it[3]
            && it[0] < OFFSET_END
    })?;
    let bytes = &objects[text_at - 3..text_at];
    if bytes[1..] != [object_bytes, object_bytes + 16] {
        return None;
    }
    let (code, frame) = (&words[code_at..], &words[frame_at..code_at]);
    let has_copies = shared && frame.len() >= 8 && object_at > 0;
    let copies = has_copies.then(|| Copies { index: frame[7], array: code[10] });
    // Before the instructions, or the copies: the first traceable one, and a word of extra data.
    let extra_end = copies.map_or(code[9], |copies| copies.array);
    let fields = [words[state_at + 4], frame[3], frame[5], code[1], code[5], code[7], code[9]];
    if fields.iter().any(|field| *field >= OFFSET_END) || extra_end < 16 + code[4] {
        return None;
    }
    let ascii_data = objects[text_at + 3];
    Some(Layout {
        first: First::Direct { frame: words[state_at + 4] },
        frames: Frames::Internal(Internal {
            previous: 8,
            code: 0,
            code_tags: 0b111,
            instruction: frame[3],
            owner: frame[5],
            entry: None,
            instructions: code[9],
            first_traceable: extra_end - 16,
            copies,
        }),
        code: Code {
            filename: code[1],
            name: code[3],
            line_table: code[4],
            first_line: code[5],
            // The number is directly before the pointer to the names of the locals.
            version: Some(code[7].checked_sub(4)?),
            line_format: LineFormat::Locations,
        },
        text: Text {
            length: objects[text_at + 2],
            state: objects[text_at + 1],
            // If several threads may change it, the flag for interned texts has its own byte.
            kind_shift: if shared && version >= (3, 14) { 8 } else { 2 },
            ascii_data,
            // After the length and the address of the text as UTF-8.
            compact_data: ascii_data + 16,
        },
        objects: Objects {
            class,
            class_flags: objects[5],
            bytes_length: bytes[1],
            bytes_data: bytes[2],
        },
    })
}

/// Fields of a code object in 3.13; later versions have one more.
const CODE_FIELDS_MIN: usize = 10;
/// Length of the longest shape.
const SHAPE_WORDS: usize = 10;

/// Returns the index, at least `from`, at which the words have this shape. Returns `None` if no
/// place or two places have it.
fn only(words: &[u64], from: usize, shape: impl Fn(&[u64]) -> bool) -> Option<usize> {
    let mut padded = [0; WORDS_COUNT + SHAPE_WORDS];
    padded.get_mut(..words.len())?.copy_from_slice(words);
    let mut places = (from..words.len()).filter(|at| shape(&padded[*at..]));
    let place = places.next()?;
    places.next().is_none().then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block that consists of these groups.
    fn block(version: u64, shared: u64, groups: &[&[u64]]) -> Words {
        let mut words = [0x0001_0003; WORDS_COUNT]; // any words may follow the block
        words[..3].copy_from_slice(&[COOKIE, version << 16 | 0x04f0, shared]);
        let fields = groups.concat();
        words[3..3 + fields.len()].copy_from_slice(&fields);
        words
    }

    const RUNTIME: [u64; 3] = [362_368, 784, 808];
    const INTERPRETER: [u64; 16] =
        [246_720, 7280, 7272, 7344, 7360, 7408, 7712, 7696, 7704, 16, 7808, 0, 7832, 7824, 8024, 0];
    /// The head of objects of 16 bytes: pyobject and type_object.
    const OBJECT: [u64; 2] = [16, 8];
    /// dict_object, float_object, long_object, bytes_object and unicode_object.
    const PLAIN: [u64; 15] = [48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40];

    fn block_of_3_13() -> Words {
        let interpreter = &INTERPRETER[..13];
        let state = [304, 0, 8, 16, 72, 152, 160, 216, 32];
        let code = [208, 112, 120, 128, 136, 68, 52, 96, 104, 200];
        let sequences = [32, 24, 16, 40, 24, 16];
        block(
            0x030d,
            0,
            &[
                &RUNTIME,
                interpreter,
                &state,
                &[80, 8, 0, 56, 72, 70],
                &code,
                &OBJECT,
                &[416, 24, 88, 168],
                &sequences,
                &PLAIN,
            ],
        )
    }

    fn block_of_3_14(first: u64) -> Words {
        let state = [832, 0, 8, 16, first, 152, 160, 232, 32];
        let code = [216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0];
        let sequences = [40, 32, 16, 40, 24, 16, 200, 24, 40, 32];
        block(
            0x030e,
            0,
            &[
                &RUNTIME,
                &INTERPRETER,
                &state,
                &[88, 8, 0, 56, 80, 74, 64, 0],
                &code,
                &OBJECT,
                &[416, 24, 88, 168],
                &sequences,
                &PLAIN,
            ],
        )
    }

    /// The block of an interpreter without the lock, built from the sources of 3.14.4.
    fn block_of_3_14_shared() -> Words {
        let state = [17628, 832, 0, 8, 16, 72, 152, 160, 232, 32];
        let code = [240, 128, 136, 144, 152, 84, 68, 112, 120, 232, 224];
        let plain = [64, 48, 56, 40, 32, 48, 32, 40, 56, 32, 48, 80, 48, 32, 56];
        block(
            0x030e,
            1,
            &[
                &RUNTIME,
                &INTERPRETER[..15],
                &state,
                &[88, 8, 0, 56, 80, 78, 64, 72],
                &code,
                &[32, 24, 432, 40, 104, 184],
                &[56, 48, 32, 56, 40, 32, 216, 40, 56, 48],
                &plain,
            ],
        )
    }

    /// A block in the order of the sources after 3.14: more fields in four groups, and groups in
    /// between.
    fn block_of_3_15() -> Words {
        let state = [848, 0, 8, 16, 72, 80, 88, 96, 168, 176, 248, 32, 36, 40, 120, 128];
        let code = [216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0];
        let sequences = [40, 32, 16, 40, 24, 16, 200, 24, 40, 32];
        block(
            0x030f,
            0,
            &[
                &RUNTIME,
                &INTERPRETER,
                &state,
                &[0],
                &[88, 8, 0, 56, 80, 74, 64, 0],
                &code,
                &OBJECT,
                &[416, 24, 88, 168, 32, 288],
                &[880, 872],
                &sequences,
                &PLAIN,
                &[56, 288],
            ],
        )
    }

    fn internal(layout: &Layout) -> Internal {
        let Frames::Internal(internal) = layout.frames else { panic!("frames of an older kind") };
        internal
    }

    #[test]
    fn each_version_is_read_as_its_headers_say() {
        let layout_of_3_13 = layout((3, 13), &block_of_3_13()).expect("3.13");
        let expected = Layout {
            first: First::Direct { frame: 72 },
            frames: Frames::Internal(Internal {
                previous: 8,
                code: 0,
                code_tags: 0b111,
                instruction: 56,
                owner: 70,
                entry: None,
                instructions: 200,
                first_traceable: 184,
                copies: None,
            }),
            code: Code {
                name: 128,
                filename: 112,
                line_table: 136,
                first_line: 68,
                version: Some(92),
                line_format: LineFormat::Locations,
            },
            text: Text { length: 16, state: 32, kind_shift: 2, ascii_data: 40, compact_data: 56 },
            objects: Objects { class: 8, class_flags: 168, bytes_length: 16, bytes_data: 32 },
        };
        assert_eq!(layout_of_3_13, expected);
        let layout_of_3_14 = layout((3, 14), &block_of_3_14(80)).expect("3.14");
        assert_eq!(layout_of_3_14.first, First::Direct { frame: 80 });
        assert_eq!(
            internal(&layout_of_3_14),
            Internal { owner: 74, instructions: 208, first_traceable: 192, ..internal(&expected) }
        );
        assert_eq!(layout_of_3_14.objects, expected.objects);
        let layout_of_3_15 = layout((3, 15), &block_of_3_15()).expect("3.15");
        assert_eq!(Layout { first: First::Direct { frame: 80 }, ..layout_of_3_15 }, layout_of_3_14);
    }

    #[test]
    fn without_the_lock_objects_are_larger_and_threads_have_copies() {
        let words = block_of_3_14_shared();
        assert!(is_shared(&words));
        let layout = layout((3, 14), &words).expect("3.14");
        let internal = internal(&layout);
        assert_eq!(internal.copies, Some(Copies { index: 72, array: 224 }));
        assert_eq!((internal.instructions, internal.first_traceable), (232, 208));
        assert_eq!((internal.instruction, internal.owner), (56, 78));
        assert_eq!(layout.code.version, Some(108));
        assert_eq!((layout.text.kind_shift, layout.text.compact_data), (8, 72));
        let objects = Objects { class: 24, class_flags: 184, bytes_length: 32, bytes_data: 48 };
        assert_eq!(layout.objects, objects);
    }

    #[test]
    fn offsets_of_another_shape_are_rejected() {
        let words = block_of_3_14(72);
        assert!(layout((3, 13), &words).is_err(), "of another version");
        // The cookie, the version, the lock; thread state; frame; code; object; bytes; text.
        for index in [0, 1, 2, 23, 25, 32, 33, 40, 42, 43, 50, 53, 75, 76, 78, 80] {
            let mut changed = words;
            changed[index] ^= 0x0001_0010;
            assert!(layout((3, 14), &changed).is_err(), "word {index}");
        }
        // A second group of the same shape after the first.
        let mut twice = words;
        twice[100..106].copy_from_slice(&words[50..56]);
        assert!(layout((3, 14), &twice).is_err());
    }
}
