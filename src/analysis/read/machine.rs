//! Interprets Python's pickle, as far as snapshots need it. It has the opcodes of PyTorch's viewer,
//! so it reads whatever the viewer opens. A pickle is a program for a stack machine with a *memo*:
//! numbered places for values that are used again.
//!
//! No opcode can run anything: those that would make Python objects are rejected by name. Nothing
//! recurses, so nesting costs no stack. Memory grows with the bytes that were read, never with a
//! size that the file announces.

use std::io::Read;

use super::error::ReadError;
use super::nodes::{self, COUNT_MAX, Nodes};
use super::source::Source;
use super::value::{Small, Value};

pub(super) struct Machine<R> {
    source: Source<R>,
    pub nodes: Nodes,
    stack: Vec<Value>,
    /// Positions of the marks on the stack.
    marks: Vec<usize>,
    memo: Vec<Small>,
    /// Buffer of the text that was read last.
    bytes: Vec<u8>,
}

type Result<T> = std::result::Result<T, ReadError>;

impl<R: Read> Machine<R> {
    pub(super) fn new(source: Source<R>) -> Machine<R> {
        let (stack, marks, memo, bytes) = Default::default();
        Machine { source, nodes: Nodes::new(), stack, marks, memo, bytes }
    }

    /// Runs the pickle to its end. Returns the value that it leaves.
    pub(super) fn run(&mut self) -> Result<Value> {
        loop {
            let opcode = self.source.byte()?;
            if opcode == STOP {
                self.nodes.read_bytes = self.source.position();
                let value = self.pop()?;
                return Ok(self.nodes.resolve(value));
            }
            self.step(opcode)?;
        }
    }

    #[inline]
    fn step(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            b'h' => {
                let place = self.source.byte()?;
                self.get(u32::from(place))
            }
            b'j' => {
                let place = u32::from_le_bytes(self.source.array()?);
                self.get(place)
            }
            b'q' => {
                let place = self.source.byte()?;
                self.put(u32::from(place))
            }
            b'r' => {
                let place = u32::from_le_bytes(self.source.array()?);
                self.put(place)
            }
            MEMOIZE => self.put(self.memo.len() as u32),

            b'K' => {
                let number = self.source.byte()?;
                self.push(Value::Number(u64::from(number)))
            }
            b'M' => {
                let number = u16::from_le_bytes(self.source.array()?);
                self.push(Value::Number(u64::from(number)))
            }
            b'J' => {
                let number = i32::from_le_bytes(self.source.array()?);
                self.push(integer(i64::from(number)))
            }
            LONG1 => {
                let bytes = self.source.byte()?;
                self.long(usize::from(bytes))
            }
            b'G' => {
                let number = f64::from_be_bytes(self.source.array()?);
                self.push(Value::Float(number))
            }
            NEWTRUE => self.push(Value::Boolean(true)),
            NEWFALSE => self.push(Value::Boolean(false)),
            b'N' => self.push(Value::Nothing),

            b'X' => {
                let bytes = u32::from_le_bytes(self.source.array()?);
                self.text(u64::from(bytes))
            }
            SHORT_BINUNICODE => {
                let bytes = self.source.byte()?;
                self.text(u64::from(bytes))
            }
            BINUNICODE8 => {
                let bytes = u64::from_le_bytes(self.source.array()?);
                self.text(bytes)
            }

            b'(' => {
                if self.marks.len() >= COUNT_MAX {
                    return Err(self.broken(nodes::too_many("marks")));
                }
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'}' => self.push(Value::EmptyDict),
            b']' => self.push(Value::EmptyList),
            b's' => self.fill(2, Nodes::set),
            b'u' => self.fill_from_mark(Nodes::set),
            b'a' => self.fill(1, Nodes::append),
            b'e' => self.fill_from_mark(Nodes::append),
            b'd' => self.collect_from_mark(|nodes, items| nodes.set(Value::EmptyDict, items)),
            b'l' => self.collect_from_mark(|nodes, items| nodes.append(Value::EmptyList, items)),
            b')' => self.push(Value::EmptyList),
            b't' => self.collect_from_mark(Nodes::tuple),
            TUPLE1 => self.collect(1, Nodes::tuple),
            TUPLE2 => self.collect(2, Nodes::tuple),
            TUPLE3 => self.collect(3, Nodes::tuple),
            b'0' => self.pop().map(drop),

            PROTO => {
                let version = self.source.byte()?;
                if version > PROTOCOL_MAX {
                    return Err(self.broken(format!("the pickle has protocol version {version}")));
                }
                Ok(())
            }
            FRAME => self.source.array::<8>().map(drop),
            _ => Err(self.unknown(opcode)),
        }
    }

    fn push(&mut self, value: Value) -> Result<()> {
        if self.stack.len() >= COUNT_MAX {
            return Err(self.broken(nodes::too_many("values in a row")));
        }
        self.stack.push(value);
        Ok(())
    }

    /// Pops a value. Values below a mark are out of reach until the mark is removed.
    fn pop(&mut self) -> Result<Value> {
        self.reach(1)?;
        Ok(self.stack.pop().expect("one is in reach"))
    }

    fn reach(&self, count: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count) {
            Some(begin) if begin >= floor => Ok(begin),
            _ => Err(self.broken("the stack of values is empty".into())),
        }
    }

    fn mark(&mut self) -> Result<usize> {
        self.marks.pop().ok_or_else(|| self.broken("the stack of marks is empty".into()))
    }

    fn get(&mut self, place: u32) -> Result<()> {
        let value = self.memo.get(place as usize).and_then(|it| it.value(&self.nodes.wide));
        match value {
            Some(value) => self.push(value),
            None => Err(self.broken(format!("memo {place} is empty"))),
        }
    }

    fn put(&mut self, place: u32) -> Result<()> {
        let value = self.pop()?;
        let value = self.nodes.placed(value).map_err(|what| self.broken(what))?;
        let place = place as usize;
        if place >= self.memo.len() {
            // Writers count up, and cachealloc and PyTorch leave only a few places free. Every
            // other place takes at least one byte of the file.
            let is_far = place - self.memo.len() > MEMO_GAP_MAX;
            if is_far
                || place >= COUNT_MAX
                || place as u64 > self.source.position() + MEMO_GAP_MAX as u64
            {
                return Err(self.broken(format!("memo {place} is out of order")));
            }
            self.memo.resize(place + 1, Small::ABSENT);
        }
        self.memo[place] = Small::of(value, &mut self.nodes.wide);
        self.push(value)
    }

    fn fill(
        &mut self,
        count: usize,
        add: impl Fn(&mut Nodes, Value, &[Value]) -> nodes::Result<Value>,
    ) -> Result<()> {
        let begin = self.reach(count)?;
        self.fill_from(begin, add)
    }

    fn fill_from_mark(
        &mut self,
        add: impl Fn(&mut Nodes, Value, &[Value]) -> nodes::Result<Value>,
    ) -> Result<()> {
        let begin = self.mark()?;
        self.fill_from(begin, add)
    }

    /// Moves the values from `begin` on into the container below them.
    fn fill_from(
        &mut self,
        begin: usize,
        add: impl Fn(&mut Nodes, Value, &[Value]) -> nodes::Result<Value>,
    ) -> Result<()> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if begin <= floor {
            return Err(self.broken("the dict or list to fill is missing".into()));
        }
        let container = self.stack[begin - 1];
        self.nodes.read_bytes = self.source.position();
        let filled = add(&mut self.nodes, container, &self.stack[begin..]);
        self.stack[begin - 1] = filled.map_err(|what| self.broken(what))?;
        self.stack.truncate(begin);
        Ok(())
    }

    fn collect(
        &mut self,
        count: usize,
        make: impl Fn(&mut Nodes, &[Value]) -> nodes::Result<Value>,
    ) -> Result<()> {
        let begin = self.reach(count)?;
        self.collect_from(begin, make)
    }

    fn collect_from_mark(
        &mut self,
        make: impl Fn(&mut Nodes, &[Value]) -> nodes::Result<Value>,
    ) -> Result<()> {
        let begin = self.mark()?;
        self.collect_from(begin, make)
    }

    /// Replaces the values from `begin` on by the value made of them.
    fn collect_from(
        &mut self,
        begin: usize,
        make: impl Fn(&mut Nodes, &[Value]) -> nodes::Result<Value>,
    ) -> Result<()> {
        self.nodes.read_bytes = self.source.position();
        let made = make(&mut self.nodes, &self.stack[begin..]);
        let made = made.map_err(|what| self.broken(what))?;
        self.stack.truncate(begin);
        self.push(made)
    }

    /// Reads an integer of `count` bytes, little-endian, in two's complement.
    fn long(&mut self, count: usize) -> Result<()> {
        let mut bytes = [0u8; 16];
        if count > bytes.len() {
            return Err(self.broken(format!("a number has {count} bytes")));
        }
        self.source.exact(&mut bytes[..count])?;
        let unused = 128 - 8 * count as u32;
        let number = i128::from_le_bytes(bytes).checked_shl(unused).unwrap_or(0) >> unused.min(127);
        let value = match (u64::try_from(number), i64::try_from(number)) {
            (Ok(number), _) => Value::Number(number),
            (_, Ok(number)) => Value::Negative(number),
            _ => return Err(self.broken(format!("the number {number} is out of range"))),
        };
        self.push(value)
    }

    fn text(&mut self, count: u64) -> Result<()> {
        if count > TEXT_BYTES_MAX {
            return Err(self.broken(format!("a text has {count} bytes")));
        }
        self.bytes.clear();
        self.source.bytes(count as usize, &mut self.bytes)?;
        if self.nodes.texts.len() >= COUNT_MAX {
            return Err(self.broken(nodes::too_many("texts")));
        }
        let text = self.nodes.texts.add(&String::from_utf8_lossy(&self.bytes));
        self.push(Value::Text(text))
    }

    fn broken(&self, what: String) -> ReadError {
        ReadError::Broken { at: self.source.position(), what }
    }

    fn unknown(&self, opcode: u8) -> ReadError {
        let at = self.source.position() - 1;
        let what = match opcode {
            b'c' | b'i' | b'o' | b'R' | b'b' | STACK_GLOBAL | NEWOBJ | NEWOBJ_EX | INST_EXT => {
                "a Python object, such as a tensor"
            }
            b'Q' | b'P' => "a reference into another file, as torch.save writes",
            b'B' | b'C' | BINBYTES8 | BYTEARRAY8 => "raw bytes",
            EMPTY_SET | FROZENSET | ADDITEMS => "a set",
            _ => {
                let what = format!("opcode {opcode:#04x} does not occur in snapshots");
                return ReadError::Broken { at, what };
            }
        };
        ReadError::Foreign { at, what: what.into() }
    }
}

fn integer(number: i64) -> Value {
    match u64::try_from(number) {
        Ok(number) => Value::Number(number),
        Err(_) => Value::Negative(number),
    }
}

const PROTOCOL_MAX: u8 = 5;
const MEMO_GAP_MAX: usize = 4096;
/// Longest text. Names of templates grow to hundreds of thousands of bytes.
const TEXT_BYTES_MAX: u64 = 1 << 26;

const STOP: u8 = b'.';
const PROTO: u8 = 0x80;
const NEWOBJ: u8 = 0x81;
const INST_EXT: u8 = 0x82;
const TUPLE1: u8 = 0x85;
const TUPLE2: u8 = 0x86;
const TUPLE3: u8 = 0x87;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const LONG1: u8 = 0x8a;
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE8: u8 = 0x8d;
const BINBYTES8: u8 = 0x8e;
const EMPTY_SET: u8 = 0x8f;
const ADDITEMS: u8 = 0x90;
const FROZENSET: u8 = 0x91;
const NEWOBJ_EX: u8 = 0x92;
const STACK_GLOBAL: u8 = 0x93;
const MEMOIZE: u8 = 0x94;
const FRAME: u8 = 0x95;
const BYTEARRAY8: u8 = 0x96;
