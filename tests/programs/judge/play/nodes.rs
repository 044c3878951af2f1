//! Graphs that are made from nodes, not captured.

use std::sync::atomic::Ordering;

use cachealloc_tests::driver::Outcome;

use super::kernels::Kernel;
use super::slots::{Block, Graph, Life};
use super::work::deep_copy;
use super::{Actor, Seen, code};
use crate::grammar::Line;

impl Actor<'_> {
    /// Builds a graph that fills the first block and copies it into the second one; also in a child
    /// graph, with fills by the driver, or followed by an event.
    pub fn build_graph(&mut self, line: &Line) -> Seen {
        let (slot, how) = (line.arg(0), line.arg(4));
        let (first, second) = (self.open_block(line.arg(1))?, self.open_block(line.arg(2))?);
        let ctx = self.current.clone().filter(|_| self.slots().graphs.is_free(slot))?;
        if first.part.1 != second.part.1 || first.address == second.address {
            return None;
        }
        let built = self.built(&first, &second, line.arg(3), how);
        let Ok((handle, fill)) = built else { return code(built.map(drop)) };
        let life = Life::default();
        for block in [&first, &second] {
            super::slots::lock(&block.graphs).push(std::sync::Arc::downgrade(&life));
        }
        let fills = vec![first.filled, second.filled];
        self.slots().graphs.put(slot, Graph { handle, fills, life: Some(life), fill, ctx });
        Some((0, Vec::new()))
    }

    fn built(
        &self,
        first: &Block,
        second: &Block,
        value: u64,
        how: u64,
    ) -> Outcome<(u64, Option<u64>)> {
        let (driver, none) = (self.driver(), std::ptr::null());
        let ctx = self.current.as_ref().map_or(0, |ctx| ctx.handle);
        let (mut graph, mut fill, mut copy, mut last) = (0, 0, 0, 0);
        call!(driver, cuGraphCreate(&mut graph, 0))?;
        if how == BY_THE_DRIVER {
            // CUDA_MEMSET_NODE_PARAMS: one row of bytes.
            let ((at, bytes), byte) = (first.part, value & 0xFF);
            let params = [at, 0, byte | 1 << 32, bytes, 1];
            let params = params.as_ptr().cast();
            call!(driver, cuGraphAddMemsetNode(&mut fill, graph, none, 0, params, ctx))?;
        } else {
            self.with_fill(first, value, |params| {
                call!(driver, cuGraphAddKernelNode(&mut fill, graph, none, 0, params))
            })?;
        }
        let shape = deep_copy((2, second.part.0, 0), (2, first.part.0, 0), first.part.1);
        let (before, shape) = ((&raw const fill).cast(), shape.as_ptr().cast());
        call!(driver, cuGraphAddMemcpyNode(&mut copy, graph, before, 1, shape, ctx))?;
        let before = (&raw const copy).cast();
        call!(driver, cuGraphAddEmptyNode(&mut last, graph, before, 1))?;
        match how {
            IN_A_CHILD => {
                let (mut parent, mut node) = (0, 0);
                call!(driver, cuGraphCreate(&mut parent, 0))?;
                call!(driver, cuGraphAddChildGraphNode(&mut node, parent, none, 0, graph))?;
                call!(driver, cuGraphDestroy(graph))?;
                Ok((parent, None))
            }
            BY_THE_DRIVER => Ok((graph, None)),
            _ => Ok((graph, Some(fill))),
        }
    }

    /// Makes the next launches fill the same block with another value.
    pub fn set_fill(&mut self, line: &Line) -> Seen {
        let (exec, block) = (self.slots().execs.get(line.arg(0))?, self.open_block(line.arg(1))?);
        let node = exec.fill.filter(|_| block.filled.load(Ordering::SeqCst))?;
        let driver = self.driver();
        code(self.with_fill(&block, line.arg(2), |params| {
            call!(driver, cuGraphExecKernelNodeSetParams(exec.handle, node, params))
        }))
    }

    fn with_fill<T>(
        &self,
        block: &Block,
        value: u64,
        add: impl FnOnce(*const std::ffi::c_void) -> Outcome<T>,
    ) -> Outcome<T> {
        let function = block.ctx.kernels.function(Kernel::LateFill);
        let args = [block.part.0, block.part.1, value, 0];
        let places = args.each_ref().map(|arg| arg as *const u64);
        // CUDA_KERNEL_NODE_PARAMS: one thread.
        let ones = 1 | 1 << 32;
        let params = [function, ones, ones, ones, 0, places.as_ptr() as u64, 0];
        add(params.as_ptr().cast())
    }
}

const IN_A_CHILD: u64 = 1;
const BY_THE_DRIVER: u64 = 2;
