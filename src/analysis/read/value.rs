//! What is on the machine's stack and in its memo: 16 bytes, whatever it stands for.

use crate::model::{FrameId, PoolId, StackId, TextId};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    Nothing,
    Boolean(bool),
    Number(u64),
    Negative(i64),
    Float(f64),
    Text(TextId),
    /// A tuple of two numbers; nothing but a pool is one.
    Pair(PoolId),
    /// Dicts and lists that nothing refers to yet, and that have no place yet.
    EmptyDict,
    EmptyList,
    /// Dicts that are what their keys say, by their index in [`Nodes`].
    Entry(u32),
    Frame(FrameId),
    Block(u32),
    Segment(u32),
    /// Any other dict.
    Map(u32),
    /// A list, or a tuple that is no pair.
    List(u32),
    /// A dict that went into the memo before it was filled.
    Slot(u32),
}

/// A value in 8 bytes, for what there is once for each entry of a file: the memo, and the dicts
/// that went into it.
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
    Frame,
    Block,
    Segment,
    Map,
    List,
    Slot,
    /// By its index in `wide`.
    Wide,
}

impl Small {
    /// No value.
    pub(super) const ABSENT: Small = Small { kind: Kind::Absent, id: 0 };

    /// `wide`: where numbers are kept. Writers put none into the memo.
    pub(super) fn of(value: Value, wide: &mut Vec<Value>) -> Small {
        let (kind, id) = match value {
            Value::Nothing => (Kind::Nothing, 0),
            Value::Boolean(yes) => (Kind::Boolean, yes.into()),
            Value::Text(text) => (Kind::Text, text.0),
            Value::Pair(pool) => (Kind::Pair, pool.0),
            Value::EmptyDict => (Kind::EmptyDict, 0),
            Value::EmptyList => (Kind::EmptyList, 0),
            Value::Entry(index) => (Kind::Entry, index),
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

/// A list as it was read, and what became of it.
#[derive(Debug)]
pub(super) enum List {
    Items(Vec<Value>),
    /// All its items were frames; now it is a stack, however often it is used.
    Stack(StackId),
    /// Its items went into the model. Nothing needs them twice, and a file that refers to a long
    /// list again and again would be a bomb.
    Taken,
}

impl Value {
    /// What it is, for messages.
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
            Value::Entry(_) => "an entry",
            Value::Frame(_) => "a frame",
            Value::Block(_) => "a block",
            Value::Segment(_) => "a segment",
        }
    }
}
