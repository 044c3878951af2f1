//! Kernels, fills and copies that a random program applies to its blocks.

use cachealloc_tests::driver::Outcome;

use crate::order::join;
use crate::worker::{Block, Worker};

impl Worker<'_> {
    /// Picks a block and a stream, orders the stream after the block's uses, and takes the block
    /// out for the work.
    pub fn take(&mut self, write: bool) -> Outcome<Option<(Block, usize)>> {
        let Some(index) = self.any_block() else { return Ok(None) };
        let stream = self.any_stream();
        let block = self.blocks.swap_remove(index);
        let clock = if write { block.touched.clone() } else { block.written.clone() };
        self.bring_in_order(stream, &clock)?;
        Ok(Some((block, stream)))
    }

    pub fn touched(&mut self, mut block: Block, stream: usize, written: Option<u64>) {
        let clock = self.streams.submit(stream);
        join(&mut block.touched, &clock);
        if let Some(value) = written {
            block.value = Some(value);
            block.written = clock;
        }
        self.blocks.push(block);
    }

    pub fn fill(&mut self) -> Outcome {
        let Some((block, stream)) = self.take(true)? else { return Ok(()) };
        let handle = self.streams.handles[stream];
        let (at, bytes) = block.part;
        let value = if self.dice.chance(80) {
            let (value, delay) = (self.program.fresh_value(), self.delay_ns());
            self.driver.launch("late_fill", handle, &[at, bytes, value, delay])?;
            value
        } else {
            let byte = self.dice.roll() as u8;
            self.driver.memset(at, byte, bytes as usize, handle)?;
            u64::from_ne_bytes([byte; 8])
        };
        self.touched(block, stream, Some(value));
        Ok(())
    }

    pub fn check(&mut self) -> Outcome {
        let Some((block, stream)) = self.take(false)? else { return Ok(()) };
        let Some(value) = block.value else {
            self.blocks.push(block);
            return Ok(());
        };
        let (at, bytes) = block.part;
        let arguments = [at, bytes, value, self.wrong_counts[stream], self.delay_ns()];
        self.driver.launch("check", self.streams.handles[stream], &arguments)?;
        self.touched(block, stream, None);
        Ok(())
    }

    pub fn copy(&mut self) -> Outcome {
        let Some((to, stream)) = self.take(true)? else { return Ok(()) };
        let same = |from: &Block| from.part.1 == to.part.1 && from.value.is_some();
        let Some(index) = self.blocks.iter().position(same) else {
            self.blocks.push(to);
            return Ok(());
        };
        let from = self.blocks.swap_remove(index);
        let (before, value) = (from.written.clone(), from.value);
        self.bring_in_order(stream, &before)?;
        let arguments = [to.part.0, from.part.0, to.part.1, self.delay_ns()];
        self.driver.launch("copy", self.streams.handles[stream], &arguments)?;
        self.touched(to, stream, value);
        self.touched(from, stream, None);
        Ok(())
    }
}
