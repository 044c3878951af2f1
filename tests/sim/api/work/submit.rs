//! Submission of work to a stream, or to the graph that the stream records.

use crate::abi::{Code, Handle, Outcome};
use crate::call::Call;
use crate::model::graphs::graph::NodeKind;
use crate::model::work::op::{OpRef, Work};

/// How a launch relates to the kernel before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Full,
    /// Programmatic stream serialisation: it may start early.
    Early,
}

impl Call {
    /// Submits work to a stream of the program. Returns `None` if it was recorded instead.
    pub fn submit(&mut self, stream: Handle, work: Work, order: Order) -> Outcome<Option<OpRef>> {
        let stream = self.stream(stream)?;
        self.submit_to(stream, work, order)
    }

    pub fn submit_to(
        &mut self,
        stream: Handle,
        work: Work,
        order: Order,
    ) -> Outcome<Option<OpRef>> {
        if self.world().capture_of(stream).is_some() {
            let early = order == Order::Early;
            self.world().capture_node(stream, NodeKind::Work(work), early)?;
            return Ok(None);
        }
        self.check_legacy(stream)?;
        // Measured: a stream-ordered free goes through while another thread's free waits.
        if !matches!(work, Work::Release { .. }) {
            let context = self.world().streams.get(stream)?.context;
            self.wait_for_context(context);
        }
        let at = self.ns();
        let world = self.world();
        let op = match order {
            Order::Full => world.submit(stream, work, at),
            Order::Early => world.submit_early(stream, work, at),
        };
        op.map(Some)
    }

    /// Submits the work of a node, piece by piece, or records the node.
    pub fn submit_sequence(&mut self, stream: Handle, node: NodeKind) -> Outcome {
        let stream = self.stream(stream)?;
        if self.world().capture_of(stream).is_some() {
            return self.world().capture_node(stream, node, false).map(drop);
        }
        let NodeKind::Sequence { works, .. } = node else { return Ok(()) };
        works.into_iter().try_for_each(|work| self.submit_to(stream, work, Order::Full).map(drop))
    }

    /// Submits work and waits for it: the synchronous forms. They cannot be recorded.
    pub fn submit_and_wait(&mut self, stream: Handle, work: Work) -> Outcome {
        let stream = self.stream(stream)?;
        self.refuse_capture(stream)?;
        self.check_legacy(stream)?;
        if let Some(op) = self.submit_to(stream, work, Order::Full)? {
            self.wait(&op);
        }
        self.check_error(stream)
    }

    /// Rejects a call that captures forbid, and kills the captures. Measured for each such call: it
    /// concerns global captures of any thread, and this thread's own that are not relaxed.
    pub fn forbid_unsafe(&mut self) -> Outcome {
        let (thread, name) = (self.thread, self.name);
        self.world().forbid_unsafe(thread, name)
    }

    /// Kills a capture if the legacy stream would wait for its stream.
    pub fn check_legacy(&mut self, stream: Handle) -> Outcome {
        let name = self.name;
        let world = self.world();
        let met = world.legacy_meets_capture(stream);
        for capture in &met {
            world.kill_capture(*capture, name);
        }
        if met.is_empty() { Ok(()) } else { Err(Code::STREAM_CAPTURE_IMPLICIT) }
    }

    /// Rejects a call that a capturing stream cannot answer, and kills the capture.
    pub fn refuse_capture(&mut self, stream: Handle) -> Outcome {
        let name = self.name;
        let world = self.world();
        let Some(capture) = world.capture_of(stream) else { return Ok(()) };
        world.kill_capture(capture, name);
        Err(Code::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Returns the error that a wait has revealed.
    pub fn check_error(&mut self, stream: Handle) -> Outcome {
        let ctx = self.world().streams.get(stream)?.ctx;
        self.world().error_of(ctx).map_or(Ok(()), Err)
    }
}
