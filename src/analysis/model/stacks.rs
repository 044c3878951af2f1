//! Frames and stacks, each stored once by content: two files have the same stack if its texts are
//! equal.

use std::collections::HashMap;
use std::sync::Arc;

use super::texts::TextId;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameId(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StackId(pub u32);

impl StackId {
    /// The empty stack: no frames were recorded.
    pub const NONE: StackId = StackId(0);

    pub const fn is_none(self) -> bool {
        self.0 == StackId::NONE.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// The function, or `??` if unknown.
    pub name: TextId,
    /// The source file, or the library if there is no line information.
    pub filename: TextId,
    /// The line in a source file, or the offset in a library.
    pub line: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Frames {
    frames: Vec<Frame>,
    ids: HashMap<Frame, FrameId>,
}

impl Frames {
    pub fn add(&mut self, frame: Frame) -> FrameId {
        let next = FrameId(id(self.frames.len()));
        let found = *self.ids.entry(frame).or_insert(next);
        if found == next {
            self.frames.push(frame);
        }
        found
    }

    pub fn get(&self, frame: FrameId) -> &Frame {
        &self.frames[frame.0 as usize]
    }

    /// Returns all frames in the order of their ids.
    pub fn all(&self) -> &[Frame] {
        &self.frames
    }
}

/// The table of stacks. Stack 0 is [`StackId::NONE`], the empty one.
#[derive(Clone, Debug)]
pub struct Stacks {
    stacks: Vec<Arc<[FrameId]>>,
    ids: HashMap<Arc<[FrameId]>, StackId>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        let mut stacks = Stacks { stacks: Vec::new(), ids: HashMap::new() };
        stacks.add(&[]);
        stacks
    }
}

impl Stacks {
    /// Adds a stack, innermost frame first.
    pub fn add(&mut self, frames: &[FrameId]) -> StackId {
        // The empty stack is stack 0.
        if frames.is_empty() && !self.stacks.is_empty() {
            return StackId::NONE;
        }
        if let Some(&stack) = self.ids.get(frames) {
            return stack;
        }
        let stack = StackId(id(self.stacks.len()));
        let frames: Arc<[FrameId]> = frames.into();
        self.stacks.push(frames.clone());
        self.ids.insert(frames, stack);
        stack
    }

    /// Returns the frames of a stack, innermost first.
    pub fn get(&self, stack: StackId) -> &[FrameId] {
        &self.stacks[stack.0 as usize]
    }

    /// Returns the number of stacks, including the empty one.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    pub fn is_empty(&self) -> bool {
        false // the empty stack is always there
    }

    pub fn ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (0..id(self.stacks.len())).map(StackId)
    }
}

fn id(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than four billion fit into memory")
}
