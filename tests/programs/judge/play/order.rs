//! Streams and events.

use std::sync::Arc;

use cachealloc_tests::driver::Outcome;

use super::slots::{Event, Stream, lock};
use super::{Actor, Seen, code};
use crate::grammar::{Line, Op};
use crate::log::BY_CHANCE;

impl Actor<'_> {
    pub fn order(&mut self, line: &Line) -> Seen {
        let (driver, slots, slot) = (self.driver(), self.slots(), line.arg(0));
        match line.op {
            Op::StreamCreate => self.create_stream(line),
            Op::StreamDestroy => {
                let stream = slots.streams.get(slot)?;
                slots.streams.clear(slot);
                if let Some(capture) = stream.capture() {
                    // A capture that the stream has begun cannot be ended any more.
                    drop(capture);
                }
                code(driver.destroy_stream(stream.handle))
            }
            Op::StreamSync => code(driver.synchronize_stream(self.stream(slot)?.handle)),
            Op::StreamQuery => self.answer(driver.query_stream(self.stream(slot)?.handle)),
            Op::EventCreate => self.create_event(line),
            Op::EventDestroy => {
                let event = slots.events.get(slot)?;
                slots.events.clear(slot);
                code(driver.destroy_event(event.handle))
            }
            Op::EventRecord | Op::EventRecordFlags => self.record(line),
            Op::EventWait => self.wait(slot, line.arg(1)),
            Op::EventSync => code(driver.synchronize_event(slots.events.get(slot)?.handle)),
            Op::EventQuery => self.answer(driver.query_event(slots.events.get(slot)?.handle)),
            Op::EventElapsed => {
                let (start, end) = (slots.events.get(slot)?, slots.events.get(line.arg(1))?);
                self.answer(driver.elapsed_ms(start.handle, end.handle).map(drop))
            }
            Op::CtxRecord => {
                let (event, ctx) = (slots.events.get(slot)?, self.current.clone()?);
                code(call!(driver, cuCtxRecordEvent(ctx.handle, event.handle)))
            }
            _ => {
                let (event, ctx) = (slots.events.get(slot)?, self.current.clone()?);
                code(call!(driver, cuCtxWaitEvent(ctx.handle, event.handle)))
            }
        }
    }

    /// The answer of a query, with a marking word if it was chance.
    fn answer(&self, outcome: Outcome) -> Seen {
        let words = match self.driver().answered_by_chance() {
            Some(true) => vec![BY_CHANCE],
            _ => Vec::new(),
        };
        Some((outcome.err().unwrap_or(0), words))
    }

    fn create_stream(&mut self, line: &Line) -> Seen {
        let (slot, flags) = (line.arg(0), line.arg(1) as u32);
        let ctx = self.current.clone()?;
        if slot < 2 || !self.slots().streams.is_free(slot) {
            return None;
        }
        let (mut handle, priority) = (0, -(line.arg(2) as i32));
        let made = call!(self.driver(), cuStreamCreateWithPriority(&mut handle, flags, priority));
        if made.is_ok() {
            self.slots().streams.put(slot, Stream { handle, ctx, capture: Arc::default() });
        }
        code(made)
    }

    fn create_event(&mut self, line: &Line) -> Seen {
        let (slot, flags) = (line.arg(0), line.arg(1) as u32);
        let ctx = self.current.clone().filter(|_| self.slots().events.is_free(slot))?;
        let mut handle = 0;
        let made = call!(self.driver(), cuEventCreate(&mut handle, flags));
        if made.is_ok() {
            self.slots().events.put(slot, Event { handle, ctx, captured: None });
        }
        code(made)
    }

    fn record(&mut self, line: &Line) -> Seen {
        let slot = line.arg(0);
        let (event, stream) = (self.slots().events.get(slot)?, self.stream(line.arg(1))?);
        let driver = self.driver();
        let recorded = match line.op {
            Op::EventRecord => driver.record(event.handle, stream.handle),
            _ => call!(driver, cuEventRecordWithFlags(event.handle, stream.handle, 0)),
        };
        if recorded.is_ok() {
            self.slots().events.put(slot, Event { captured: stream.capture(), ..event });
        }
        code(recorded)
    }

    /// Makes a stream wait for an event; if a capture recorded the event, the stream joins the
    /// capture.
    fn wait(&mut self, stream: u64, event: u64) -> Seen {
        let (stream, event) = (self.stream(stream)?, self.slots().events.get(event)?);
        let waits: Outcome = self.driver().stream_waits(stream.handle, event.handle);
        if waits.is_ok() && event.captured.is_some() {
            *lock(&stream.capture) = event.captured;
        }
        code(waits)
    }
}
