//! The values read so far. A dict becomes what its keys say as soon as it is filled, so a million
//! entries take a million times 32 bytes and never a million dicts.
//!
//! Values that the file shares stay shared: frames, stacks and texts are numbers, and a list of
//! frames that is used again is looked up once. Other lists may be used once (see [`List::Taken`]),
//! so that a small file cannot require much memory.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use super::bounds::check_size;
use super::value::{List, Small, Value};
use super::words;
use crate::model::{Action, Block, Entries, Frames, PoolId, Segment, Stacks, TextId, Texts};

/// The error describes what is wrong, without the position.
pub(super) type Result<T> = std::result::Result<T, String>;

pub(super) type Pairs = Vec<(Value, Value)>;

pub(super) struct Nodes {
    pub texts: Texts,
    pub frames: Frames,
    pub stacks: Stacks,
    pub pools: Vec<(u64, u64)>,
    pool_ids: HashMap<(u64, u64), PoolId>,
    pub entries: Entries,
    /// Number of entries that are in a list, if no later one is in another.
    pub(super) listed_count: usize,
    pub blocks: Vec<Block>,
    /// Segments, each with the ordinal of its device, which is negative for the host.
    pub segments: Vec<(i64, Segment)>,
    pub(super) maps: Vec<Pairs>,
    pub(super) lists: Vec<List>,
    slots: Vec<Small>,
    /// Values that do not fit into a [`Small`].
    pub(super) wide: Vec<Value>,
    /// The text of each dict that was used as one, with its number of pairs.
    pub(super) plains: HashMap<u32, (usize, TextId)>,
    /// Bytes of the file that were read. `copied_bytes` is what copying shared data produced.
    pub read_bytes: u64,
    copied_bytes: u64,
}

/// Most dicts, lists, and other counted values. Recordings have far fewer, and this many fit into a
/// few gigabytes.
pub(super) const COUNT_MAX: usize = 1 << 26;

impl Nodes {
    pub(super) fn new() -> Nodes {
        Nodes {
            texts: words::texts(),
            frames: Frames::default(),
            stacks: Stacks::default(),
            pools: vec![(0, 0)],
            pool_ids: HashMap::from([((0, 0), PoolId::DEFAULT)]),
            entries: Entries::default(),
            listed_count: 0,
            blocks: Vec::new(),
            segments: Vec::new(),
            maps: Vec::new(),
            lists: Vec::new(),
            slots: Vec::new(),
            wide: Vec::new(),
            plains: HashMap::new(),
            read_bytes: 0,
            copied_bytes: 0,
        }
    }

    /// Gives a value that is about to be referred to a place, if it has none.
    pub(super) fn placed(&mut self, value: Value) -> Result<Value> {
        match value {
            Value::EmptyDict => {
                let empty = Small::of(value, &mut self.wide);
                Ok(Value::Slot(pushed(&mut self.slots, empty, "dicts")?))
            }
            Value::EmptyList => self.list(Vec::new()),
            value => Ok(value),
        }
    }

    /// Returns what a dict has become.
    pub(super) fn resolve(&self, value: Value) -> Value {
        match value {
            Value::Slot(slot) => {
                self.slots[slot as usize].value(&self.wide).unwrap_or(Value::Nothing)
            }
            value => value,
        }
    }

    pub(super) fn list(&mut self, items: Vec<Value>) -> Result<Value> {
        pushed(&mut self.lists, List::Items(items), "lists").map(Value::List)
    }

    pub(super) fn tuple(&mut self, items: &[Value]) -> Result<Value> {
        match *items {
            [Value::Number(first), Value::Number(second)] => {
                self.pool((first, second)).map(Value::Pair)
            }
            _ => self.list(items.to_vec()),
        }
    }

    /// Appends items to a list and returns the list.
    pub(super) fn append(&mut self, list: Value, items: &[Value]) -> Result<Value> {
        let entries = self.newest_entries(items);
        if entries.is_some() {
            self.listed_count = self.entries.len();
        }
        let id = match list {
            Value::EmptyList => {
                return match entries {
                    Some(entries) => {
                        pushed(&mut self.lists, List::Entries(entries), "lists").map(Value::List)
                    }
                    None => self.list(items.to_vec()),
                };
            }
            Value::List(id) => id as usize,
            value => return Err(format!("cannot append to {}", value.kind())),
        };
        match (&mut self.lists[id], entries) {
            // A list that was put into the memo before it was filled.
            (List::Items(known), Some(entries)) if known.is_empty() => {
                self.lists[id] = List::Entries(entries);
            }
            (List::Items(known), _) => known.extend_from_slice(items),
            (List::Entries(known), Some(more)) if known.end == more.start => known.end = more.end,
            (List::Entries(known), _) => {
                let known = known.clone();
                let mut known = self.items_of(known);
                known.extend_from_slice(items);
                self.lists[id] = List::Items(known);
            }
            (List::Stack(_) | List::Taken, _) => {
                return Err("a list grows after it was used".into());
            }
        }
        Ok(list)
    }

    /// Returns the numbers of these items if they are the newest entries, in order, each with the
    /// completion of its free.
    fn newest_entries(&self, items: &[Value]) -> Option<Range<u32>> {
        let Some(Value::Entry(first)) = items.first().map(|&item| self.resolve(item)) else {
            return None;
        };
        let mut items = items.iter().map(|&item| self.resolve(item));
        let newest = first..self.entries.len() as u32;
        let is_next = |number: u32| {
            let is_whole = self.entries.get(number as usize)?.action == Action::Free;
            let is_entry = items.next()? == Value::Entry(number);
            (is_entry && (!is_whole || items.next()? == Value::Completion(number))).then_some(())
        };
        newest.clone().try_for_each(is_next)?;
        items.next().is_none().then_some(newest)
    }

    /// Returns whether there are entries in a list that was not taken.
    pub(super) fn any_list_has_entries(&self) -> bool {
        let is_entry =
            |&item: &Value| matches!(self.resolve(item), Value::Entry(_) | Value::Completion(_));
        self.lists.iter().any(|list| match list {
            List::Items(items) => items.iter().any(is_entry),
            List::Entries(_) => true,
            List::Stack(_) | List::Taken => false,
        })
    }

    fn items_of(&self, entries: Range<u32>) -> Vec<Value> {
        let is_whole = |number: u32| {
            self.entries.get(number as usize).is_some_and(|entry| entry.action == Action::Free)
        };
        let both = |number| {
            let completion = is_whole(number).then_some(Value::Completion(number));
            [Some(Value::Entry(number)), completion].into_iter().flatten()
        };
        entries.flat_map(both).collect()
    }

    /// Sets alternating keys and values in a dict and returns the dict.
    pub(super) fn set(&mut self, dict: Value, items: &[Value]) -> Result<Value> {
        if !items.len().is_multiple_of(2) {
            return Err("a key of a dict has no value".into());
        }
        match self.resolve(dict) {
            Value::EmptyDict if items.is_empty() => Ok(dict),
            Value::EmptyDict => {
                let filled = self.dict(items)?;
                match dict {
                    Value::Slot(slot) => {
                        self.slots[slot as usize] = Small::of(filled, &mut self.wide);
                    }
                    _ => return Ok(filled),
                }
                Ok(dict)
            }
            Value::Map(map) => {
                self.maps[map as usize].extend(pairs(items));
                Ok(dict)
            }
            value => Err(format!("cannot set a key in {}", value.kind())),
        }
    }

    /// Takes the items of a list, which cannot be used afterwards.
    pub(super) fn take(&mut self, list: Value) -> Result<Vec<Value>> {
        match list {
            Value::EmptyList | Value::Nothing => Ok(Vec::new()),
            Value::List(id) => match mem::replace(&mut self.lists[id as usize], List::Taken) {
                List::Items(items) => Ok(items),
                List::Entries(entries) => Ok(self.items_of(entries)),
                List::Stack(_) => Err("a list of frames is used as another list".into()),
                List::Taken => Err("the same list is used twice".into()),
            },
            value => Err(format!("{} is where a list should be", value.kind())),
        }
    }

    /// Returns the pairs of a dict that is not in the schema.
    pub(super) fn pairs(&self, map: u32) -> &Pairs {
        &self.maps[map as usize]
    }

    pub(super) fn get(&self, map: u32, key: TextId) -> Option<Value> {
        let found = self.pairs(map).iter().find(|(found, _)| *found == Value::Text(key));
        found.map(|&(_, value)| self.resolve(value))
    }

    /// Returns a short text for a value. For a dict it lists the pairs, but not the pairs of nested
    /// dicts.
    pub(super) fn plain(&mut self, value: Value) -> Result<String> {
        let mut text = String::new();
        let Value::Map(map) = self.resolve(value) else {
            self.push_scalar(value, &mut text)?;
            return Ok(text);
        };
        for index in 0..self.pairs(map).len().min(PLAIN_PAIRS_MAX) {
            let (key, value) = self.pairs(map)[index];
            if index > 0 {
                text.push(' ');
            }
            self.push_scalar(key, &mut text)?;
            text.push('=');
            self.push_scalar(value, &mut text)?;
        }
        Ok(text)
    }

    fn push_scalar(&mut self, value: Value, text: &mut String) -> Result<()> {
        match self.resolve(value) {
            Value::Boolean(yes) => *text += &yes.to_string(),
            Value::Number(number) => *text += &number.to_string(),
            Value::Negative(number) => *text += &number.to_string(),
            Value::Float(number) => *text += &number.to_string(),
            Value::Text(id) => {
                self.copied_bytes =
                    self.copied_bytes.saturating_add(self.texts.get(id).len() as u64);
                check_size(self.copied_bytes, self.read_bytes)?;
                *text += self.texts.get(id);
            }
            Value::Nothing => {}
            value => *text += value.kind(),
        }
        Ok(())
    }

    pub(super) fn pool(&mut self, pool: (u64, u64)) -> Result<PoolId> {
        if self.pools.len() >= COUNT_MAX {
            return Err(too_many("pools"));
        }
        let next = PoolId(self.pools.len() as u32);
        let id = *self.pool_ids.entry(pool).or_insert(next);
        if id == next {
            self.pools.push(pool);
        }
        Ok(id)
    }
}

/// Most pairs of a dict that is shown as text.
const PLAIN_PAIRS_MAX: usize = 64;

pub(super) fn pairs(items: &[Value]) -> impl Iterator<Item = (Value, Value)> + '_ {
    items.as_chunks::<2>().0.iter().map(|&[key, value]| (key, value))
}

pub(super) fn pushed<T>(all: &mut Vec<T>, item: T, what: &str) -> Result<u32> {
    if all.len() >= COUNT_MAX {
        return Err(too_many(what));
    }
    all.push(item);
    Ok((all.len() - 1) as u32)
}

pub(super) fn too_many(what: &str) -> String {
    format!("it has more than {COUNT_MAX} {what}")
}
