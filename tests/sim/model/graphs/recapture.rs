//! Captures into a graph that has been captured before. Its nodes are found again in the order of
//! their creation, and get the parameters of the new work.

use super::graph::{Edge, NodeKind};
use crate::abi::{Code, GraphNodeParams, Handle, Outcome, RecaptureCallback};
use crate::model::world::World;

/// The state of such a capture.
#[derive(Clone, Copy)]
pub struct Recapture {
    /// Number of nodes that were captured again.
    pub count: usize,
    /// Called for each node whose parameters differ.
    pub callback: RecaptureCallback,
    pub data: u64,
}

/// A node whose parameters have changed, for the callback of the program.
pub struct Changed {
    capture: u64,
    node: Handle,
    before: GraphNodeParams,
    now: GraphNodeParams,
}

impl Changed {
    /// Tells the program. Returns the capture if the program does not agree.
    pub fn tell(&self, Recapture { callback, data, .. }: Recapture) -> Option<u64> {
        let callback = callback?;
        // SAFETY: the program gave the function for these arguments, and no lock is held.
        let code = unsafe { callback(data, self.node, &self.before, &self.now, ELIGIBLE) };
        (code != 0).then_some(self.capture)
    }
}

/// The change also applies to an executable graph, by an update.
const ELIGIBLE: u32 = 0;

impl World {
    /// Releases the user objects of a graph, as its recapture does first.
    pub fn release_objects(&mut self, graph: Handle) -> Outcome {
        let state = self.graphs.graphs.find_mut(graph).ok_or(Code::INVALID_VALUE)?;
        drop(std::mem::take(&mut state.objects));
        Ok(())
    }

    /// Captures the next node of a graph again, with these predecessors.
    pub fn capture_again(&mut self, id: u64, kind: NodeKind, before: &[Edge]) -> Outcome<Handle> {
        let Some((node, known)) = self.next_again(id) else { return self.fail_again(id) };
        let state = self.graphs.nodes.get(node)?;
        let same_edges = state.before.len() == before.len()
            && before.iter().all(|edge| state.before.contains(edge));
        let is_memory = matches!(kind, NodeKind::Alloc { .. } | NodeKind::Free { .. });
        let fits = known.type_number() == kind.type_number() && (!is_memory || known == kind);
        if !same_edges || !fits {
            return self.fail_again(id);
        }
        if known != kind {
            let (before, now) = (known.params(), kind.params());
            self.graphs.nodes.get_mut(node)?.kind = kind;
            self.captures.changed = Some(Changed { capture: id, node, before, now });
        }
        let capture = self.captures.active.get_mut(&id).expect("the caller has found it");
        capture.recapture.as_mut().expect("it is a recapture").count += 1;
        Ok(node)
    }

    /// The address that an allocation of this size gets if it is captured again. Returns `None` if
    /// the capture is of another kind.
    pub fn address_again(&mut self, stream: Handle, bytes: u64) -> Option<Outcome<u64>> {
        let id = self.capture_of(stream)?;
        self.captures.active[&id].recapture?;
        match self.next_again(id) {
            Some((_, NodeKind::Alloc { address, bytes: known })) if known == bytes => {
                Some(Ok(address))
            }
            _ => Some(self.fail_again(id)),
        }
    }

    /// Whether a recapture has not come to the last node of its graph.
    pub fn lacks_nodes(&self, id: u64) -> bool {
        let capture = &self.captures.active[&id];
        let nodes = self.graphs.graphs.find(capture.graph).map_or(0, |graph| graph.nodes.len());
        capture.recapture.is_some_and(|recapture| recapture.count < nodes)
    }

    /// The state of a recapture that is not over.
    pub fn recapture(&self, changed: &Changed) -> Option<Recapture> {
        self.captures.active.get(&changed.capture)?.recapture
    }

    /// The node that a recapture expects next.
    fn next_again(&self, id: u64) -> Option<(Handle, NodeKind)> {
        let capture = &self.captures.active[&id];
        let nodes = &self.graphs.graphs.find(capture.graph)?.nodes;
        let node = *nodes.get(capture.recapture?.count)?;
        Some((node, self.graphs.nodes.find(node)?.kind.clone()))
    }

    fn fail_again<T>(&mut self, id: u64) -> Outcome<T> {
        self.kill_capture(id, "a node that differs");
        Err(Code::GRAPH_RECAPTURE_FAILURE)
    }
}

impl NodeKind {
    /// Whether work of this kind may go to a command list of a graphics API.
    pub fn fits_command_list(&self) -> bool {
        const KERNEL_COPY_FILL: std::ops::RangeInclusive<u32> = 0..=2;
        const EVENT_RECORD: u32 = 7;
        let number = self.type_number();
        KERNEL_COPY_FILL.contains(&number) || number == EVENT_RECORD
    }

    /// The parameters for a callback: the kind of the node, and nothing of what is specific to it.
    fn params(&self) -> GraphNodeParams {
        let (kind, reserved, body) = (self.type_number(), [0; 3], [0; 29]);
        GraphNodeParams { kind, reserved, body, reserved_end: 0 }
    }
}
