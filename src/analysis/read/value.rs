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
