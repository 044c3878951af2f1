//! Reasons why a file cannot be read as a snapshot. The sentences continue after the file's name.

use std::fmt::{self, Display, Formatter};
use std::io;

#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    Empty,
    /// A packed file or a known format that is not read.
    OtherFormat(&'static str),
    /// The file ends in the middle of a snapshot.
    Truncated {
        at: u64,
    },
    /// A pickle of Python objects.
    Foreign {
        at: u64,
        what: String,
    },
    /// Data that Python does not write.
    Broken {
        at: u64,
        what: String,
    },
    /// A valid pickle of something else.
    NoSnapshot(String),
}

impl Display for ReadError {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(out, "cannot be read: {error}"),
            ReadError::Empty => write!(out, "is empty: its writer did not finish or never started"),
            ReadError::OtherFormat(what) => write!(out, "{what}"),
            ReadError::Truncated { at } => {
                write!(out, "is truncated: it ends at byte {at}, inside a snapshot")
            }
            ReadError::Foreign { at, what } => {
                write!(out, "is a pickle, but not a snapshot: at byte {at} it contains {what}")
            }
            ReadError::Broken { at, what } => {
                write!(out, "is not a snapshot, or is damaged: at byte {at}, {what}")
            }
            ReadError::NoSnapshot(what) => write!(out, "is a pickle, but not a snapshot: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}
