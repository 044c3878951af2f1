//! The layout of each version of CPython, as offsets in bytes from the start of the object.
//!
//! Source: `offsetof` over the installed headers of 3.9.18, 3.10.13, 3.11.7 and 3.12.1
//! (`cpython/code.h`, `cpython/frameobject.h`, `cpython/pystate.h`, `internal/pycore_frame.h`),
//! 64-bit, release build. A minor version keeps its layout, because extension modules are compiled
//! against these headers once for all its patch levels. From 3.13 on an interpreter publishes its
//! own layout, and is not in the table (`debug_offsets.rs`).

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("the offsets below are those of 64-bit little-endian builds");

/// Fields of objects of any type, and those of `bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Objects {
    /// `ob_type`.
    pub class: u64,
    /// Flags, in a type.
    pub class_flags: u64,
    pub bytes_length: u64,
    pub bytes_data: u64,
}

/// How to find a thread's newest frame from its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum First {
    /// The state points to it.
    Direct { frame: u64 },
    /// The state points to a structure on the C stack, which points to it.
    ThroughCFrame { cframe: u64, frame: u64 },
}

/// Layout of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frames {
    /// `PyFrameObject`: every frame is a Python object and has its own C evaluation frame.
    /// `unit_bytes` is the size of one step of `f_lasti`.
    Objects { back: u64, code: u64, last_instruction: u64, unit_bytes: i32 },
    /// `_PyInterpreterFrame`: most frames are in a stack that the interpreter manages.
    Internal(Internal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Internal {
    pub previous: u64,
    pub code: u64,
    /// Bits of the reference to the code that are not part of the address.
    pub code_tags: u64,
    pub instruction: u64,
    pub owner: u64,
    /// `is_entry`, 3.11 only; later versions mark an entry by an additional frame.
    pub entry: Option<u64>,
    /// In the code object: the first instruction, and the number of instructions that the
    /// interpreter requires before the frame counts as started.
    pub instructions: u64,
    pub first_traceable: u64,
    pub copies: Option<Copies>,
}

/// Per-thread copies of a code object's instructions, in builds without the interpreter's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copies {
    /// In a frame: index of the copy that it runs, 32 bits.
    pub index: u64,
    /// In a code object: pointer to the array of copies; the word before the first is their number.
    pub array: u64,
}

/// Format of the bytes of `co_linetable` (`co_lnotab`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineFormat {
    /// 3.9: pairs of address and line steps.
    Pairs,
    /// 3.10: PEP 626, pairs of range and line steps.
    Ranges,
    /// 3.11 on: one entry of variable length for each run of instructions.
    Locations,
}

/// The fields of a code object that identify it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code {
    pub name: u64,
    pub filename: u64,
    pub line_table: u64,
    pub first_line: u64,
    /// `co_version`, which is unique among the code objects of an interpreter.
    pub version: Option<u64>,
    pub line_format: LineFormat,
}

/// A `str`, and the place of its data for each form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    pub length: u64,
    pub state: u64,
    /// Number of bits of the state below its kind.
    pub kind_shift: u32,
    pub ascii_data: u64,
    pub compact_data: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub first: First,
    pub frames: Frames,
    pub code: Code,
    pub text: Text,
    pub objects: Objects,
}

/// Returns the layout of a version that does not publish its own, or `None` if it is unknown.
pub(crate) fn of_version(major: u8, minor: u8) -> Option<Layout> {
    match (major, minor) {
        (3, 9) => Some(VERSION_3_9),
        (3, 10) => Some(VERSION_3_10),
        (3, 11) => Some(VERSION_3_11),
        (3, 12) => Some(VERSION_3_12),
        _ => None,
    }
}

const TEXT_BEFORE_3_12: Text =
    Text { length: 16, state: 32, kind_shift: 2, ascii_data: 48, compact_data: 72 };
const TEXT_3_12: Text = Text { ascii_data: 40, compact_data: 56, ..TEXT_BEFORE_3_12 };
const OBJECTS: Objects = Objects { class: 8, class_flags: 168, bytes_length: 16, bytes_data: 32 };

const VERSION_3_9: Layout = Layout {
    first: First::Direct { frame: 24 },
    frames: Frames::Objects { back: 24, code: 32, last_instruction: 104, unit_bytes: 1 },
    code: Code {
        name: 112,
        filename: 104,
        line_table: 120,
        first_line: 40,
        version: None,
        line_format: LineFormat::Pairs,
    },
    text: TEXT_BEFORE_3_12,
    objects: OBJECTS,
};

const VERSION_3_10: Layout = Layout {
    first: First::Direct { frame: 24 },
    frames: Frames::Objects { back: 24, code: 32, last_instruction: 96, unit_bytes: 2 },
    code: Code { line_format: LineFormat::Ranges, ..VERSION_3_9.code },
    text: TEXT_BEFORE_3_12,
    objects: OBJECTS,
};

const VERSION_3_11: Layout = Layout {
    first: First::ThroughCFrame { cframe: 56, frame: 8 },
    frames: Frames::Internal(Internal {
        previous: 48,
        code: 32,
        code_tags: 0,
        instruction: 56,
        owner: 69,
        entry: Some(68),
        instructions: 184,
        first_traceable: 168,
        copies: None,
    }),
    code: Code {
        name: 128,
        filename: 112,
        line_table: 136,
        first_line: 72,
        version: None,
        line_format: LineFormat::Locations,
    },
    text: TEXT_BEFORE_3_12,
    objects: OBJECTS,
};

const VERSION_3_12: Layout = Layout {
    first: First::ThroughCFrame { cframe: 56, frame: 0 },
    frames: Frames::Internal(Internal {
        previous: 8,
        code: 0,
        code_tags: 0,
        instruction: 56,
        owner: 70,
        entry: None,
        instructions: 192,
        first_traceable: 176,
        copies: None,
    }),
    code: Code { first_line: 68, version: Some(92), ..VERSION_3_11.code },
    text: TEXT_3_12,
    objects: OBJECTS,
};
