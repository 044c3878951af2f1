//! Where each version of CPython keeps what, in bytes from the start of the object.
//!
//! Source: `offsetof` over the installed headers of 3.9.18, 3.10.13, 3.11.7, 3.12.1 and 3.13.0
//! (`cpython/code.h`, `cpython/frameobject.h`, `cpython/pystate.h`, `internal/pycore_frame.h`),
//! 64-bit, release build. A minor version keeps its layout: extension modules are compiled against
//! these headers once for all its patch levels. The headers of 3.14 were read, not compiled
//! (`internal/pycore_interpframe_structs.h`, `internal/pycore_stackref.h`); what that version
//! publishes about itself must agree with them (`published.rs`).
//!
//! The same for all: `ob_type` at 8, the length of a `bytes` at 16 and its bytes at 32, the length
//! of a `str` at 16 and its state at 32, the flags of a type at 168.

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("the offsets below are those of 64-bit little-endian builds");

pub(crate) const OBJECT_TYPE: u64 = 8;
pub(crate) const BYTES_LENGTH: u64 = 16;
pub(crate) const BYTES_DATA: u64 = 32;
pub(crate) const TEXT_LENGTH: u64 = 16;
pub(crate) const TEXT_STATE: u64 = 32;
pub(crate) const TYPE_FLAGS: u64 = 168;

/// How a thread's newest frame is found from its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum First {
    /// The state points to it.
    Direct { frame: u64 },
    /// The state points to a structure on the C stack, which points to it.
    ThroughCFrame { cframe: u64, frame: u64 },
}

/// What a frame looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frames {
    /// `PyFrameObject`: every frame is a Python object and has a C evaluation frame of its own.
    /// `unit_bytes` is what one step of `f_lasti` is worth.
    Objects { back: u64, code: u64, last_instruction: u64, unit_bytes: i32 },
    /// `_PyInterpreterFrame`: most frames lie in a stack of the interpreter's own.
    Internal(Internal),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Internal {
    pub previous: u64,
    pub code: u64,
    /// Bits of the reference to the code that are no part of the address.
    pub code_tags: u64,
    pub instruction: u64,
    pub owner: u64,
    /// `is_entry`, 3.11 only; later versions mark an entry by a frame of the interpreter's own.
    pub entry: Option<u64>,
    /// In the code object: the first instruction, and how many of them the interpreter itself
    /// wants before the frame counts as started.
    pub instructions: u64,
    pub first_traceable: u64,
}

/// How the bytes behind `co_linetable` (`co_lnotab`) are to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineFormat {
    /// 3.9: pairs of address and line steps.
    Pairs,
    /// 3.10: PEP 626, pairs of range and line steps.
    Ranges,
    /// 3.11 on: one entry of variable length for each run of instructions.
    Locations,
}

/// The fields of a code object that name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code {
    pub name: u64,
    pub filename: u64,
    pub line_table: u64,
    pub first_line: u64,
    /// `co_version`: no two code objects of an interpreter have the same one.
    pub version: Option<u64>,
    pub line_format: LineFormat,
}

/// The data of a `str`, by its form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    pub ascii_data: u64,
    pub compact_data: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub first: First,
    pub frames: Frames,
    pub code: Code,
    pub text: Text,
}

/// The layout of a version, none if it is not known.
pub(crate) fn of_version(major: u8, minor: u8) -> Option<Layout> {
    match (major, minor) {
        (3, 9) => Some(VERSION_3_9),
        (3, 10) => Some(VERSION_3_10),
        (3, 11) => Some(VERSION_3_11),
        (3, 12) => Some(VERSION_3_12),
        (3, 13) => Some(VERSION_3_13),
        (3, 14) => Some(VERSION_3_14),
        _ => None,
    }
}

const TEXT_BEFORE_3_12: Text = Text { ascii_data: 48, compact_data: 72 };
const TEXT_FROM_3_12: Text = Text { ascii_data: 40, compact_data: 56 };

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
};

const VERSION_3_10: Layout = Layout {
    first: First::Direct { frame: 24 },
    frames: Frames::Objects { back: 24, code: 32, last_instruction: 96, unit_bytes: 2 },
    code: Code { line_format: LineFormat::Ranges, ..VERSION_3_9.code },
    text: TEXT_BEFORE_3_12,
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
};

const INTERNAL_3_12: Internal = Internal {
    previous: 8,
    code: 0,
    code_tags: 0,
    instruction: 56,
    owner: 70,
    entry: None,
    instructions: 192,
    first_traceable: 176,
};

const VERSION_3_12: Layout = Layout {
    first: First::ThroughCFrame { cframe: 56, frame: 0 },
    frames: Frames::Internal(INTERNAL_3_12),
    code: Code { first_line: 68, version: Some(92), ..VERSION_3_11.code },
    text: TEXT_FROM_3_12,
};

const VERSION_3_13: Layout = Layout {
    first: First::Direct { frame: 72 },
    frames: Frames::Internal(Internal { instructions: 200, first_traceable: 184, ..INTERNAL_3_12 }),
    ..VERSION_3_12
};

/// Not compiled against: see `published.rs`, which also puts in where the first frame is.
const VERSION_3_14: Layout = Layout {
    frames: Frames::Internal(Internal {
        code_tags: 0b11,
        owner: 74,
        instructions: 208,
        first_traceable: 192,
        ..INTERNAL_3_12
    }),
    ..VERSION_3_13
};
