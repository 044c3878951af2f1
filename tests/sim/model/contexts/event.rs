//! Events: a mark in the work of a stream or of a whole context.

use crate::abi::Handle;
use crate::model::work::op::OpRef;

pub struct Event {
    pub context: Handle,
    pub timing: bool,
    /// The marker of the last record; an event never recorded counts as complete.
    pub op: Option<OpRef>,
    /// The capture and the predecessors, if it was recorded inside a capture.
    pub captured: Option<Captured>,
}

#[derive(Clone)]
pub struct Captured {
    pub capture: u64,
    pub nodes: Vec<Handle>,
}

impl Event {
    pub fn done(&self) -> bool {
        self.op.as_ref().is_none_or(|op| op.done())
    }
}
