//! Pinned words, which the host reads and writes, and events that it queries.

use cachealloc_tests::driver::Outcome;

use crate::order::{Clock, covers};
use crate::worker::Worker;

/// One word of pinned memory.
pub struct Cell {
    pub address: u64,
    pub value: u64,
    pub touched: Clock,
}

impl Worker<'_> {
    /// The host writes a pinned word, which a copy reads.
    pub fn cell_to_block(&mut self) -> Outcome {
        let index = self.dice.below(self.cells.len());
        self.host_knows(index)?;
        let Some((mut block, stream)) = self.take(true)? else { return Ok(()) };
        let value = self.program.fresh_value();
        self.cells[index].value = value;
        self.driver.host_write(self.cells[index].address, value);
        self.driver.copy(
            block.part.0,
            self.cells[index].address,
            8,
            self.streams.handles[stream],
        )?;
        block.part.1 = 8;
        let clock = self.streams.submit(stream);
        self.cells[index].touched = clock;
        self.touched(block, stream, Some(value));
        Ok(())
    }

    /// The device writes a pinned word, which the host reads at once after a free.
    pub fn block_to_cell(&mut self) -> Outcome {
        let index = self.dice.below(self.cells.len());
        let Some((block, stream)) = self.take(false)? else { return Ok(()) };
        let Some(value) = block.value else {
            self.blocks.push(block);
            return Ok(());
        };
        let cell = self.cells[index].touched.clone();
        self.bring_in_order(stream, &cell)?;
        let (from, to, delay) = (block.part.0, self.cells[index].address, self.delay_ns());
        let handle = self.streams.handles[stream];
        match self.dice.below(3) {
            0 => self.driver.launch("late_fill", handle, &[to, 8, value, delay])?,
            1 => self.driver.launch("copy", handle, &[to, from, 8, delay])?,
            _ => self.driver.copy(to, from, 8, handle)?,
        }
        self.cells[index].value = value;
        self.cells[index].touched = self.streams.submit(stream);
        self.touched(block, stream, None);
        if self.dice.chance(70) { self.host_knows(index) } else { Ok(()) }
    }

    /// The host waits for a pinned word by one of several calls, and reads it.
    pub fn host_knows(&mut self, index: usize) -> Outcome {
        let touched = self.cells[index].touched.clone();
        if !covers(self.streams.host(), &touched) {
            let stream = (0..touched.len()).find(|stream| touched[*stream] > 0).unwrap_or(0);
            if self.program.frees_wait && self.dice.chance(70) {
                self.free_a_temporary()?;
            } else {
                self.driver.synchronize_stream(self.streams.handles[stream])?;
                self.streams.host_waited_for(stream);
            }
        }
        let read = self.driver.host_read(self.cells[index].address);
        self.seen_wrong += u64::from(read != self.cells[index].value);
        Ok(())
    }

    /// [3] Queries an event and a stream once after a free.
    pub fn ask(&mut self) -> Outcome {
        let (stream, event) = (self.any_stream(), self.driver.event()?);
        self.driver.record(event, self.streams.handles[stream])?;
        let recorded = self.streams.past(stream);
        if self.program.frees_wait {
            self.free_a_temporary()?;
            if let Err(code) = self.driver.query_event(event) {
                eprintln!("an event that was recorded before a free: {code}");
                self.seen_wrong += 1;
            }
        } else if self.driver.query_event(event).is_ok() {
            self.streams.host_waited(&recorded);
        }
        self.driver.destroy_event(event)
    }
}
