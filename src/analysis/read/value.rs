//! A value on the machine's stack or in its memo, in 16 bytes.

use std::ops::Range;

use crate::model::{FrameId, PoolId, StackId, TextId};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    Nothing,
    Boolean(bool),
    Number(u64),
    Negative(i64),
    Float(f64),
    Text(TextId),
    /// A tuple of two numbers. Only pools are such tuples.
    Pair(PoolId),
    /// An empty dict or list that has no place yet because nothing refers to it.
    EmptyDict,
    EmptyList,
    /// Dicts that were recognized by their keys, as indices in [`Nodes`].
    Entry(u32),
    /// The completion of the free that this entry requests, directly after it.
    Completion(u32),
    Frame(FrameId),
    Block(u32),
    Segment(u32),
    /// Any other dict.
    Map(u32),
    /// A list, or a tuple other than a pair.
    List(u32),
    /// A dict that was put into the memo before it was filled.
    Slot(u32),
}

/// A value in 8 bytes. The memo and the dicts in it have one per entry of the file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Small {
    kind: Kind,
    id: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(u8)]
enum Kind {
    Absent,
    Nothing,
    Boolean,
    Text,
    Pair,
    EmptyDict,
    EmptyList,
    Entry,
    Completion,
    Frame,
    Block,
    Segment,
    Map,
    List,
    Slot,
    /// Index in `wide`.
    Wide,
}

impl Small {
    /// No value.
    pub(super) const ABSENT: Small = Small { kind: Kind::Absent, id: 0 };

    /// Stores a value, with numbers in `wide`. Writers put no numbers into the memo.
    pub(super) fn of(value: Value, wide: &mut Vec<Value>) -> Small {
        let (kind, id) = match value {
            Value::Nothing => (Kind::Nothing, 0),
            Value::Boolean(yes) => (Kind::Boolean, yes.into()),
            Value::Text(text) => (Kind::Text, text.0),
            Value::Pair(pool) => (Kind::Pair, pool.0),
            Value::EmptyDict => (Kind::EmptyDict, 0),
            Value::EmptyList => (Kind::EmptyList, 0),
            Value::Entry(index) => (Kind::Entry, index),
            Value::Completion(index) => (Kind::Completion, index),
            Value::Frame(frame) => (Kind::Frame, frame.0),
            Value::Block(index) => (Kind::Block, index),
            Value::Segment(index) => (Kind::Segment, index),
            Value::Map(index) => (Kind::Map, index),
            Value::List(index) => (Kind::List, index),
            Value::Slot(index) => (Kind::Slot, index),
            Value::Number(_) | Value::Negative(_) | Value::Float(_) => {
                wide.push(value);
                (Kind::Wide, (wide.len() - 1) as u32)
            }
        };
        Small { kind, id }
    }

    pub(super) fn value(self, wide: &[Value]) -> Option<Value> {
        let id = self.id;
        Some(match self.kind {
            Kind::Absent => return None,
            Kind::Nothing => Value::Nothing,
            Kind::Boolean => Value::Boolean(id != 0),
            Kind::Text => Value::Text(TextId(id)),
            Kind::Pair => Value::Pair(PoolId(id)),
            Kind::EmptyDict => Value::EmptyDict,
            Kind::EmptyList => Value::EmptyList,
            Kind::Entry => Value::Entry(id),
            Kind::Completion => Value::Completion(id),
            Kind::Frame => Value::Frame(FrameId(id)),
            Kind::Block => Value::Block(id),
            Kind::Segment => Value::Segment(id),
            Kind::Map => Value::Map(id),
            Kind::List => Value::List(id),
            Kind::Slot => Value::Slot(id),
            Kind::Wide => return wide.get(id as usize).copied(),
        })
    }
}

/// A list as it was read, or its use.
#[derive(Debug)]
pub(super) enum List {
    Items(Vec<Value>),
    /// Entries with consecutive numbers, and the completions of their frees. A history has
    /// millions, and they need no value each.
    Entries(Range<u32>),
    /// A list of frames. It became a stack, which may be used repeatedly.
    Stack(StackId),
    /// A list whose items were moved into the model. No snapshot needs them twice, and a file that
    /// refers to a long list repeatedly would be a bomb.
    Taken,
}

impl Value {
    /// Returns the kind of the value, for messages.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Value::Nothing => "None",
            Value::Boolean(_) => "a boolean",
            Value::Number(_) | Value::Negative(_) => "a number",
            Value::Float(_) => "a float",
            Value::Text(_) => "a text",
            Value::Pair(_) => "a tuple",
            Value::EmptyDict | Value::Map(_) | Value::Slot(_) => "a dict",
            Value::EmptyList | Value::List(_) => "a list",
            Value::Entry(_) | Value::Completion(_) => "an entry",
            Value::Frame(_) => "a frame",
            Value::Block(_) => "a block",
            Value::Segment(_) => "a segment",
        }
    }
}
