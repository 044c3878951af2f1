//! Blocks that pass between the threads of a random program.

use cachealloc_tests::driver::{Event, Outcome};

use crate::order::covers;
use crate::worker::{Block, Worker};

/// A block for another thread, and the event after which it may be used; without one it may be used
/// at once.
pub struct Parcel {
    block: Block,
    ready: Option<Event>,
}

impl Worker<'_> {
    pub fn send(&mut self) -> Outcome {
        let Some(index) = self.any_block() else { return Ok(()) };
        self.drop_graphs_with(index)?;
        let block = self.blocks.swap_remove(index);
        let ready = if covers(self.streams.host(), &block.touched) {
            None
        } else {
            let stream = self.any_stream();
            let touched = block.touched.clone();
            self.bring_in_order(stream, &touched)?;
            let event = self.driver.event()?;
            self.driver.record(event, self.streams.handles[stream])?;
            Some(event)
        };
        // The receiver may have ended.
        drop(self.next.send(Parcel { block, ready }));
        Ok(())
    }

    pub fn receive(&mut self) -> Outcome {
        let parcel = self.inbox.lock().expect("no worker panics").try_recv();
        let Ok(Parcel { mut block, ready }) = parcel else { return Ok(()) };
        let mut clock = self.streams.nothing();
        if let Some(event) = ready {
            let stream = self.any_stream();
            self.driver.stream_waits(self.streams.handles[stream], event)?;
            self.driver.destroy_event(event)?;
            clock = self.streams.mark(stream);
        }
        (block.written, block.touched) = (clock.clone(), clock);
        self.blocks.push(block);
        Ok(())
    }
}
