//! Recognizes a dict by its keys: an entry, a block, a segment, a frame, or none of these.

use cachealloc_history::{action_words, state_words};

use super::nodes::{COUNT_MAX, Nodes, Result, pairs, pushed, too_many};
use super::value::{List, Value};
use super::words;
use crate::model::{Action, Block, BlockState, Entry, Frame, PoolId, Segment, StackId, TextId};

/// Address of a block that has none in the file: it starts where the previous one ends.
pub(super) const NO_ADDRESS: u64 = u64::MAX;

impl Nodes {
    pub(super) fn dict(&mut self, items: &[Value]) -> Result<Value> {
        let has = |key: TextId| pairs(items).any(|(found, _)| found == Value::Text(key));
        if has(words::SIZE) {
            if has(words::ACTION) {
                return self.entry(items);
            }
            if has(words::STATE) {
                return self.block(items);
            }
        } else if has(words::FILENAME) && has(words::NAME) {
            return self.frame(items);
        } else if has(words::BLOCKS) && has(words::TOTAL_SIZE) {
            return self.segment(items);
        }
        pushed(&mut self.maps, pairs(items).collect(), "dicts").map(Value::Map)
    }

    fn entry(&mut self, items: &[Value]) -> Result<Value> {
        let mut entry = Entry {
            time_us: 0,
            address: 0,
            bytes: 0,
            stream: 0,
            stack: StackId::NONE,
            category: TextId::EMPTY,
            compile_context: TextId::EMPTY,
            user_metadata: TextId::EMPTY,
            pool: PoolId::DEFAULT,
            action: Action::Other,
            entered: 0,
        };
        for (key, value) in pairs(items) {
            let Value::Text(key) = key else { continue };
            match key {
                words::ACTION => entry.action = action(value)?,
                words::ADDR | words::DEVICE_FREE => entry.address = number(key, value, self)?,
                words::SIZE => entry.bytes = number(key, value, self)?,
                words::STREAM => entry.stream = handle(key, value, self)?,
                words::TIME_US => entry.time_us = number(key, value, self)?,
                words::FRAMES => entry.stack = self.stack(value)?,
                words::CATEGORY => entry.category = self.text(value, words::UNKNOWN)?,
                words::COMPILE_CONTEXT => {
                    entry.compile_context = self.text(value, words::NOT_AVAILABLE)?;
                }
                words::USER_METADATA => entry.user_metadata = self.text(value, TextId::EMPTY)?,
                words::RANGE_ENTERED => {
                    let entered = number(key, value, self)?;
                    entry.entered = u8::try_from(entered).unwrap_or(u8::MAX);
                }
                words::POOL_ID => entry.pool = self.pool_of(value)?,
                _ => {}
            }
        }
        self.add_entry(entry)
    }

    /// Adds an entry. The completion of a free directly after its request takes no place of its
    /// own, unless the request is in a list already: then the completion may be in another one.
    fn add_entry(&mut self, entry: Entry) -> Result<Value> {
        let number = self.entries.len();
        if number > self.listed_count
            && let Some(request) = self.entries.last()
            && completes(&request, &entry)
        {
            self.entries.set(number - 1, Entry { action: Action::Free, ..request });
            return Ok(Value::Completion((number - 1) as u32));
        }
        if number >= COUNT_MAX {
            return Err(too_many("entries"));
        }
        self.entries.push(entry);
        Ok(Value::Entry(number as u32))
    }

    fn block(&mut self, items: &[Value]) -> Result<Value> {
        let mut block = Block {
            address: NO_ADDRESS,
            bytes: 0,
            requested_bytes: 0,
            state: BlockState::Free,
            stack: StackId::NONE,
            category: TextId::EMPTY,
        };
        let mut requested = None;
        for (key, value) in pairs(items) {
            let Value::Text(key) = key else { continue };
            match key {
                words::ADDRESS => block.address = number(key, value, self)?,
                words::SIZE => block.bytes = number(key, value, self)?,
                words::REQUESTED_SIZE => requested = Some(number(key, value, self)?),
                words::STATE => block.state = state(value)?,
                words::FRAMES => block.stack = self.stack(value)?,
                words::CATEGORY => block.category = self.text(value, words::UNKNOWN)?,
                words::HISTORY => {
                    let (stack, bytes) = self.old_history(value)?;
                    block.stack = stack;
                    requested = requested.or(bytes);
                }
                _ => {}
            }
        }
        block.requested_bytes = requested.unwrap_or(block.bytes);
        pushed(&mut self.blocks, block, "blocks").map(Value::Block)
    }

    /// Reads the form of blocks before 2023: the allocations in the block, the last one first.
    fn old_history(&mut self, value: Value) -> Result<(StackId, Option<u64>)> {
        let last = match value {
            Value::List(id) => match &self.lists[id as usize] {
                List::Items(items) => items.first().copied(),
                _ => None,
            },
            _ => None,
        };
        let Some(Value::Map(map)) = last.map(|last| self.resolve(last)) else {
            return Ok((StackId::NONE, None));
        };
        let bytes = match self.get(map, words::REAL_SIZE) {
            Some(value) => Some(number(words::REAL_SIZE, value, self)?),
            None => None,
        };
        let frames = self.get(map, words::FRAMES).unwrap_or(Value::Nothing);
        Ok((self.stack(frames)?, bytes))
    }

    fn segment(&mut self, items: &[Value]) -> Result<Value> {
        let mut device = 0;
        let mut segment = Segment {
            address: 0,
            bytes: 0,
            stream: 0,
            small: false,
            pool: PoolId::DEFAULT,
            expandable: false,
            stack: StackId::NONE,
            blocks: Vec::new(),
        };
        for (key, value) in pairs(items) {
            let Value::Text(key) = key else { continue };
            match key {
                words::DEVICE => device = handle(key, value, self)? as i64,
                words::ADDRESS => segment.address = number(key, value, self)?,
                words::TOTAL_SIZE => segment.bytes = number(key, value, self)?,
                words::STREAM => segment.stream = handle(key, value, self)?,
                words::SEGMENT_TYPE => segment.small = value == Value::Text(words::SMALL),
                words::SEGMENT_POOL_ID => segment.pool = self.pool_of(value)?,
                words::IS_EXPANDABLE => segment.expandable = value == Value::Boolean(true),
                words::FRAMES => segment.stack = self.stack(value)?,
                words::BLOCKS => segment.blocks = self.blocks(value)?,
                _ => {}
            }
        }
        pushed(&mut self.segments, (device, segment), "segments").map(Value::Segment)
    }

    fn blocks(&mut self, list: Value) -> Result<Vec<Block>> {
        let blocks = self.take(list)?;
        let block = |value| match self.resolve(value) {
            Value::Block(block) => Ok(self.blocks[block as usize]),
            value => Err(format!("{} was found in the list of blocks", value.kind())),
        };
        blocks.into_iter().map(block).collect()
    }

    fn frame(&mut self, items: &[Value]) -> Result<Value> {
        let mut frame = Frame { name: TextId::EMPTY, filename: TextId::EMPTY, line: 0 };
        for (key, value) in pairs(items) {
            match (key, value) {
                (Value::Text(words::NAME), Value::Text(name)) => frame.name = name,
                (Value::Text(words::FILENAME), Value::Text(name)) => frame.filename = name,
                (Value::Text(words::LINE), Value::Number(line)) => frame.line = line,
                _ => {}
            }
        }
        if self.frames.all().len() >= COUNT_MAX {
            return Err(too_many("frames"));
        }
        Ok(Value::Frame(self.frames.add(frame)))
    }

    /// Returns the stack of a list of frames. The list becomes a stack when it is first used.
    fn stack(&mut self, value: Value) -> Result<StackId> {
        let id = match value {
            Value::Nothing | Value::EmptyList => return Ok(StackId::NONE),
            Value::List(id) => id as usize,
            value => return Err(format!("`frames` is {}", value.kind())),
        };
        let items = match &self.lists[id] {
            List::Stack(stack) => return Ok(*stack),
            List::Items(items) => items,
            List::Entries(_) | List::Taken => {
                return Err("`frames` is a list of other items".into());
            }
        };
        let frame = |&value: &Value| match self.resolve(value) {
            Value::Frame(frame) => Ok(frame),
            value => Err(format!("{} was found in a list of frames", value.kind())),
        };
        let frames = items.iter().map(frame).collect::<Result<Vec<_>>>()?;
        let stack = self.stacks.add(&frames);
        self.lists[id] = List::Stack(stack);
        Ok(stack)
    }

    /// Returns a value as text. Returns the empty text if the value is missing, or if it tells no
    /// more than `nothing`.
    fn text(&mut self, value: Value, nothing: TextId) -> Result<TextId> {
        Ok(match self.resolve(value) {
            Value::Text(text) if text == nothing => TextId::EMPTY,
            Value::Text(text) => text,
            Value::Nothing | Value::EmptyDict | Value::EmptyList => TextId::EMPTY,
            Value::Map(map) => {
                // One dict shared by many entries becomes one text.
                let count = self.pairs(map).len();
                match self.plains.get(&map) {
                    Some(&(known, text)) if known == count => text,
                    _ => {
                        let text = self.plain(Value::Map(map))?;
                        let text = self.texts.add(&text);
                        self.plains.insert(map, (count, text));
                        text
                    }
                }
            }
            value => {
                let text = self.plain(value)?;
                self.texts.add(&text)
            }
        })
    }

    fn pool_of(&mut self, value: Value) -> Result<PoolId> {
        // JSON turns tuples into lists.
        if let Value::List(id) = value
            && let List::Items(items) = &self.lists[id as usize]
            && let [Value::Number(first), Value::Number(second)] = items[..]
        {
            return self.pool((first, second));
        }
        Ok(if let Value::Pair(pool) = value { pool } else { PoolId::DEFAULT })
    }
}

fn number(key: TextId, value: Value, nodes: &Nodes) -> Result<u64> {
    match value {
        Value::Number(number) => Ok(number),
        value => {
            let key = nodes.texts.get(key);
            Err(format!("`{key}` is {}, not a non-negative number", value.kind()))
        }
    }
}

/// Reads a number that only identifies something; some of them are -1.
fn handle(key: TextId, value: Value, nodes: &Nodes) -> Result<u64> {
    match value {
        Value::Negative(number) => Ok(number as u64),
        value => number(key, value, nodes),
    }
}

fn action(value: Value) -> Result<Action> {
    let Value::Text(text) = value else {
        return Err(format!("an action is {}, not a string", value.kind()));
    };
    macro_rules! choose {
        ($($name:ident = $word:ident,)*) => {
            match text {
                $(words::$word => Action::$name,)*
                words::FREE => Action::Free,
                words::ANNOTATE => Action::Annotate,
                _ => Action::Other,
            }
        };
    }
    Ok(action_words!(choose))
}

fn state(value: Value) -> Result<BlockState> {
    let Value::Text(text) = value else {
        return Err(format!("the state of a block is {}", value.kind()));
    };
    macro_rules! choose {
        ($($name:ident = $word:ident,)*) => {
            match text {
                $(words::$word => Ok(BlockState::$name),)*
                words::ACTIVE_AWAITING_FREE => Ok(BlockState::Pending),
                _ => Err("a block is neither allocated nor pending nor inactive".into()),
            }
        };
    }
    state_words!(choose)
}

/// Returns whether the second entry completes the free that the first one requests.
pub(super) fn completes(request: &Entry, completion: &Entry) -> bool {
    request.action == Action::FreeRequested
        && completion.action == Action::FreeCompleted
        && request.address == completion.address
}
