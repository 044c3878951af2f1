//! Reads a file into the model.
//!
//! The crate has its own reader because serde-pickle rejects or loses containers that are used
//! twice. Files of cachealloc and PyTorch consist of such containers. serde-pickle also makes a
//! tree of the whole file, where this reader makes the model as it goes. The tests use serde-pickle
//! as the oracle.

mod assemble;
mod bounds;
mod dicts;
mod error;
mod machine;
mod nodes;
mod source;
mod value;
mod words;

use std::io::Read;

use crate::model::Snapshot;
pub use error::ReadError;
use machine::Machine;
use source::Source;

/// Reads a snapshot that cachealloc or PyTorch has written. `reader` need not be buffered.
pub fn read(reader: impl Read) -> Result<Snapshot, ReadError> {
    let mut source = Source::new(reader);
    recognise(source.peek(MAGIC_BYTES)?)?;
    let mut machine = Machine::new(source);
    let top = machine.run()?;
    assemble::snapshot(machine.nodes, top)
}

const MAGIC_BYTES: usize = 4;

/// Checks that the first bytes are those of a pickle. The error names the format that they belong
/// to.
fn recognise(begin: &[u8]) -> Result<(), ReadError> {
    let what = match begin {
        [] => return Err(ReadError::Empty),
        [0x80, ..] => return Ok(()),
        [0x1f, 0x8b, ..] => "is compressed by gzip: decompress it with gunzip",
        [0x28, 0xb5, 0x2f, 0xfd] => "is compressed by zstd: decompress it with unzstd",
        [0xfd, b'7', b'z', b'X'] => "is compressed by xz: decompress it with unxz",
        [b'P', b'K', ..] => "is a zip archive, as torch.save writes, not a snapshot",
        [b'{' | b'[', ..] => "is JSON, not a pickle: name the snapshot that it was made from",
        _ => "is not a snapshot: it does not begin like a pickle",
    };
    Err(ReadError::OtherFormat(what))
}
