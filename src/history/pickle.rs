//! Streaming writer of Python's pickle format, protocol 2. It uses the opcodes of PyTorch's own
//! writer, because every version of its viewer reads these.
//!
//! Repeated values are written once and then fetched from the *memo*: numbered places that writer
//! and reader agree on. The caller keeps the numbers of lists and dicts; texts are looked up here,
//! by value. Numbers below 256 take two bytes instead of five and are for [`Word`]s, texts that are
//! known in advance.
//!
//! Memory use grows with the number of distinct values, not with the size of the output.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::hash::BuildWordHasher;

/// A frequent text, with its place in the memo.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    pub place: u8,
    pub text: &'static str,
}

/// Index into the memo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoIndex(u32);

pub(crate) struct Pickle<W> {
    output: W,
    words_written: [bool; WORDS_COUNT_MAX],
    texts: HashMap<Box<str>, MemoIndex, BuildWordHasher>,
    next_place: u32,
}

const WORDS_COUNT_MAX: usize = 256;

/// The viewer puts a batch onto its stack and breaks beyond some 125,000 items; Python's own writer
/// has this bound.
const BATCH_ITEMS_MAX: usize = 1000;

impl<W: Write> Pickle<W> {
    pub(crate) fn begin(mut output: W) -> io::Result<Pickle<W>> {
        output.write_all(&[PROTO, 2])?;
        Ok(Pickle {
            output,
            words_written: [false; WORDS_COUNT_MAX],
            texts: HashMap::default(),
            next_place: WORDS_COUNT_MAX as u32,
        })
    }

    pub(crate) fn end(mut self) -> io::Result<()> {
        self.output.write_all(&[STOP])?;
        self.output.flush()
    }

    pub(crate) fn word(&mut self, word: Word) -> io::Result<()> {
        let Word { place, text } = word;
        if self.words_written[place as usize] {
            return self.output.write_all(&[BINGET, place]);
        }
        self.words_written[place as usize] = true;
        self.unicode(text)?;
        self.output.write_all(&[BINPUT, place])
    }

    /// Writes a text that may occur again.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&place) = self.texts.get(text) {
            return self.get(place);
        }
        self.unicode(text)?;
        let place = self.put()?;
        self.texts.insert(text.into(), place);
        Ok(())
    }

    pub(crate) fn integer(&mut self, number: u64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(number) {
            self.output.write_all(&[BININT1, byte])
        } else if let Ok(short) = u16::try_from(number) {
            self.with(BININT2, &short.to_le_bytes())
        } else if let Ok(number) = i32::try_from(number) {
            self.with(BININT, &number.to_le_bytes())
        } else if number <= i64::MAX as u64 {
            self.output.write_all(&[LONG1, 8])?;
            self.output.write_all(&number.to_le_bytes())
        } else {
            // The ninth byte is for the sign.
            self.output.write_all(&[LONG1, 9])?;
            self.output.write_all(&number.to_le_bytes())?;
            self.output.write_all(&[0])
        }
    }

    pub(crate) fn minus_one(&mut self) -> io::Result<()> {
        self.with(BININT, &(-1i32).to_le_bytes())
    }

    pub(crate) fn float(&mut self, number: f64) -> io::Result<()> {
        self.with(BINFLOAT, &number.to_be_bytes())
    }

    pub(crate) fn boolean(&mut self, yes: bool) -> io::Result<()> {
        self.output.write_all(&[if yes { NEWTRUE } else { NEWFALSE }])
    }

    pub(crate) fn pair(&mut self, pair: (u64, u64)) -> io::Result<()> {
        self.integer(pair.0)?;
        self.integer(pair.1)?;
        self.output.write_all(&[TUPLE2])
    }

    /// Stores the value written last in the memo; [`Pickle::get`] fetches it.
    pub(crate) fn put(&mut self) -> io::Result<MemoIndex> {
        let place = MemoIndex(self.next_place);
        self.next_place += 1;
        self.with(LONG_BINPUT, &place.0.to_le_bytes())?;
        Ok(place)
    }

    pub(crate) fn get(&mut self, place: MemoIndex) -> io::Result<()> {
        self.with(LONG_BINGET, &place.0.to_le_bytes())
    }

    /// Opens a dict. The caller writes keys and values in turn, then calls [`Pickle::end_dict`].
    /// For dicts of a few keys, which form one batch.
    pub(crate) fn begin_dict(&mut self) -> io::Result<()> {
        self.output.write_all(&[EMPTY_DICT, MARK])
    }

    pub(crate) fn end_dict(&mut self) -> io::Result<()> {
        self.output.write_all(&[SETITEMS])
    }

    /// Opens a dict of any size. The caller calls [`Batch::item`] before each key.
    pub(crate) fn begin_large_dict(&mut self) -> io::Result<Batch> {
        self.output.write_all(&[EMPTY_DICT])?;
        Ok(Batch { append: SETITEMS, items: 0 })
    }

    /// Opens a list of any length. The caller calls [`Batch::item`] before each item.
    pub(crate) fn begin_list(&mut self) -> io::Result<Batch> {
        self.output.write_all(&[EMPTY_LIST])?;
        Ok(Batch { append: APPENDS, items: 0 })
    }

    fn unicode(&mut self, text: &str) -> io::Result<()> {
        let bytes = u32::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.with(BINUNICODE, &bytes.to_le_bytes())?;
        self.output.write_all(text.as_bytes())
    }

    fn with(&mut self, opcode: u8, operand: &[u8]) -> io::Result<()> {
        self.output.write_all(&[opcode])?;
        self.output.write_all(operand)
    }
}

/// An open list or dict. The items of a batch are on the reader's stack until the batch ends.
pub(crate) struct Batch {
    append: u8,
    items: usize,
}

impl Batch {
    /// Must be called before each item.
    pub(crate) fn item<W: Write>(&mut self, pickle: &mut Pickle<W>) -> io::Result<()> {
        if self.items == BATCH_ITEMS_MAX {
            pickle.output.write_all(&[self.append])?;
            self.items = 0;
        }
        if self.items == 0 {
            pickle.output.write_all(&[MARK])?;
        }
        self.items += 1;
        Ok(())
    }

    pub(crate) fn end<W: Write>(self, pickle: &mut Pickle<W>) -> io::Result<()> {
        if self.items > 0 {
            pickle.output.write_all(&[self.append])?;
        }
        Ok(())
    }
}

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const BINUNICODE: u8 = b'X';
const BINPUT: u8 = b'q';
const LONG_BINPUT: u8 = b'r';
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINFLOAT: u8 = b'G';
const TUPLE2: u8 = 0x86;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
