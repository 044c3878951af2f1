//! What an interpreter from 3.13 on publishes about its own layout, for debuggers: a block of
//! words at the start of `_PyRuntime`. It is held against our table; 3.14, which the table was not
//! compiled against, is accepted only if they agree.

use crate::layout::{Code, First, Frames, Internal, Layout};

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// Words of the block that are looked at, at most.
pub(crate) const WORDS_COUNT: usize = 64;

/// Where the groups of the block start, in words: later versions put in more fields.
struct Groups {
    thread_state: usize,
    frame: usize,
    code: usize,
    object: usize,
}

const GROUPS_3_13: Groups = Groups { thread_state: 19, frame: 28, code: 34, object: 44 };
const GROUPS_3_14: Groups = Groups { thread_state: 22, frame: 31, code: 39, object: 50 };

/// The layout with what only the interpreter knows put in, or why it is not believed.
pub(crate) fn agree(
    layout: Layout,
    version: (u8, u8),
    words: &[u64; WORDS_COUNT],
) -> Result<Layout, &'static str> {
    let groups = match version {
        (3, 13) => &GROUPS_3_13,
        (3, 14) => &GROUPS_3_14,
        _ => return Err("its way to publish offsets is not known"),
    };
    if words[0] != COOKIE || words[1] >> 16 != u64::from(version.0) << 8 | u64::from(version.1) {
        return Err("it does not publish its offsets");
    }
    if words[2] != 0 {
        return Err("it was built without the interpreter's lock");
    }
    let Frames::Internal(internal) = layout.frames else { return Err("frames of an older kind") };
    let frame = words[groups.thread_state + 4];
    let agreed = frame_agrees(&internal, &words[groups.frame..])
        && code_agrees(&layout.code, &internal, &words[groups.code..])
        && words[groups.object..groups.object + 2] == [16, crate::layout::OBJECT_TYPE];
    match layout.first {
        // A thread's state grows with each version, so this one is taken as published.
        First::Direct { .. } if agreed && frame.is_multiple_of(8) && frame < 4096 => {
            Ok(Layout { first: First::Direct { frame }, ..layout })
        }
        _ => Err("the offsets that it publishes are not the known ones"),
    }
}

/// Fields: size, previous, executable, instr_ptr, localsplus, owner.
fn frame_agrees(known: &Internal, words: &[u64]) -> bool {
    [words[1], words[2], words[3], words[5]]
        == [known.previous, known.code, known.instruction, known.owner]
}

/// Fields: size, filename, name, qualname, linetable, firstlineno, three more, co_code_adaptive.
fn code_agrees(known: &Code, internal: &Internal, words: &[u64]) -> bool {
    [words[1], words[3], words[4], words[5], words[9]]
        == [known.filename, known.name, known.line_table, known.first_line, internal.instructions]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::of_version;

    /// The block as the headers of 3.14 lay it out, with a first frame of its own.
    fn block_of_3_14() -> [u64; WORDS_COUNT] {
        let mut words = [0; WORDS_COUNT];
        words[0] = COOKIE;
        words[1] = 0x030e_00f0;
        words[GROUPS_3_14.thread_state + 4] = 80;
        words[GROUPS_3_14.frame..][..6].copy_from_slice(&[88, 8, 0, 56, 80, 74]);
        words[GROUPS_3_14.code..][..10]
            .copy_from_slice(&[216, 112, 120, 128, 136, 68, 52, 96, 104, 208]);
        words[GROUPS_3_14.object..][..2].copy_from_slice(&[16, 8]);
        words
    }

    #[test]
    fn an_unseen_version_is_believed_only_if_all_agrees() {
        let layout = of_version(3, 14).expect("in the table");
        let words = block_of_3_14();
        let agreed = agree(layout, (3, 14), &words).expect("the headers' own offsets");
        assert_eq!(agreed, Layout { first: First::Direct { frame: 80 }, ..layout });
        for index in [0, 1, 2, GROUPS_3_14.frame + 5, GROUPS_3_14.code + 9, GROUPS_3_14.object + 1]
        {
            let mut changed = words;
            changed[index] ^= 0x0001_0010;
            assert!(agree(layout, (3, 14), &changed).is_err(), "word {index}");
        }
    }
}
