//! Host memory whose address a kernel stores in memory of the device, where a later kernel finds
//! it.

use std::sync::Arc;

use cachealloc_tests::driver::{Driver, Outcome};

use super::kernels::{BY_LIST, COOPERATIVE, IN_ONE_BUFFER, Kernel, launch};
use super::slots::{Ctx, HostKind, Stream, lock};
use super::{Actor, Seen, code};
use crate::grammar::Line;

/// Device memory with the address of host memory, its size and the value to be written there.
#[derive(Clone)]
pub struct AddressTable {
    at: u64,
    ctx: Ctx,
}

const WORD: u64 = 8;

impl Actor<'_> {
    pub fn keep_address(&self, line: &Line) -> Seen {
        let (host, stream) = (self.slots().hosts.get(line.arg(0))?, self.stream(line.arg(1))?);
        let is_current = self.current.as_ref().is_some_and(|ctx| Arc::ptr_eq(ctx, &stream.ctx));
        let mut table = lock(&host.table);
        if host.kind != HostKind::Pinned || table.is_some() || !is_current {
            return None;
        }
        let Ok(at) = self.driver().alloc(4096) else { return None };
        let size = [at + WORD, WORD, host.part.1, 0];
        let sized = self.kernel(&stream, Kernel::LateFill, &size, BY_LIST);
        let stores = [at, WORD, host.part.0, 0];
        let kept = sized.and_then(|()| self.store_address(&stream, stores, line.arg(2)));
        if kept.is_err() {
            // Not every stream or driver accepts every way. The later lines rely on the address.
            self.kernel(&stream, Kernel::LateFill, &stores, BY_LIST).ok()?;
        }
        *table = Some(AddressTable { at, ctx: stream.ctx.clone() });
        code(kept)
    }

    /// Runs a kernel with these arguments.
    fn store_address(&self, stream: &Stream, stores: Arguments, how: u64) -> Outcome {
        let driver = self.driver();
        let function = stream.ctx.kernels.function(Kernel::LateFill);
        let [table, _, address, _] = stores;
        let harmless = [table, WORD, 1, 0];
        let node = Node { driver, function, stream: stream.handle };
        match how {
            0 => launch(driver, function, stream.handle, &stores, BY_LIST),
            1 => launch(driver, function, stream.handle, &stores, IN_ONE_BUFFER),
            2 => launch(driver, function, stream.handle, &stores, COOPERATIVE),
            3 => node.launched_with_arguments_set_before(stores),
            4 => node.launched_on_several_devices(stores),
            5 => node.added(stores),
            6 => node.added_as_any(stores),
            7 => node.changed(harmless, stores),
            8 => node.changed_as_any(harmless, stores),
            9 => node.changed_in_executable(harmless, stores),
            10 => node.changed_in_executable_as_any(harmless, stores),
            11 => node.updated(harmless, stores),
            12 => node.in_a_child(stores),
            13 => node.captured(stores),
            _ => self.copied(stream, table, address),
        }
    }

    /// Copies the address there, after a query that announces kernels that use it.
    fn copied(&self, stream: &Stream, table: u64, address: u64) -> Outcome {
        let (driver, mut device) = (self.driver(), 0);
        call!(driver, cuMemHostGetDevicePointer(&mut device, address, 0))?;
        call!(driver, cuStreamSynchronize(stream.handle))?;
        call!(driver, cuMemcpyHtoD(table, &raw const device as u64, WORD as usize))
    }

    /// Writes the memory by a kernel that finds its address.
    pub fn fill_found(&self, index: usize, line: &Line) -> Seen {
        let (host, stream) = (self.slots().hosts.get(line.arg(0))?, self.stream(line.arg(1))?);
        let table = lock(&host.table).clone()?;
        if !Arc::ptr_eq(&table.ctx, &stream.ctx) {
            return None;
        }
        let value = [table.at + 2 * WORD, WORD, line.arg(2), 0];
        let delay = self.delay(index, line.arg(3));
        let done = self
            .kernel(&stream, Kernel::LateFill, &value, BY_LIST)
            .and_then(|()| self.kernel(&stream, Kernel::IndirectFill, &[table.at, delay], BY_LIST));
        if done.is_ok() {
            stream.fills(&host.filled);
        }
        code(done)
    }
}

/// A kernel that is launched in uncommon ways.
struct Node<'a> {
    driver: &'a Driver,
    function: u64,
    stream: u64,
}

type Arguments = [u64; 4];

impl Node<'_> {
    fn launched_with_arguments_set_before(&self, arguments: Arguments) -> Outcome {
        let (driver, function) = (self.driver, self.function);
        for (index, argument) in arguments.iter().enumerate() {
            let (offset, value) = (index as i32 * WORD as i32, (&raw const *argument).cast());
            call!(driver, cuParamSetv(function, offset, value, WORD as u32))?;
        }
        call!(driver, cuParamSetSize(function, size_of::<Arguments>() as u32))?;
        call!(driver, cuFuncSetBlockShape(function, 1, 1, 1))?;
        call!(driver, cuLaunchGridAsync(function, 1, 1, self.stream))
    }

    fn launched_on_several_devices(&self, arguments: Arguments) -> Outcome {
        let places = places_of(&arguments);
        // CUDA_LAUNCH_PARAMS: one thread.
        let mut params = [self.function, ONES, ONES, ONES, 0, self.stream, places.as_ptr() as u64];
        let params = params.as_mut_ptr().cast();
        call!(self.driver, cuLaunchCooperativeKernelMultiDevice(params, 1, 0))
    }

    fn added(&self, arguments: Arguments) -> Outcome {
        let graph = self.graph_of(arguments)?.0;
        self.run(self.driver.instantiate(graph)?, graph)
    }

    fn added_as_any(&self, arguments: Arguments) -> Outcome {
        let (driver, none) = (self.driver, std::ptr::null());
        let (mut graph, mut node) = (0, 0);
        call!(driver, cuGraphCreate(&mut graph, 0))?;
        self.with_any_params(arguments, |params| {
            call!(driver, cuGraphAddNode(&mut node, graph, none, none, 0, params))
        })?;
        self.run(driver.instantiate(graph)?, graph)
    }

    fn changed(&self, before: Arguments, after: Arguments) -> Outcome {
        let (graph, node) = self.graph_of(before)?;
        self.with_params(after, |params| {
            call!(self.driver, cuGraphKernelNodeSetParams(node, params))
        })?;
        self.run(self.driver.instantiate(graph)?, graph)
    }

    fn changed_as_any(&self, before: Arguments, after: Arguments) -> Outcome {
        let (graph, node) = self.graph_of(before)?;
        self.with_any_params(after, |params| {
            call!(self.driver, cuGraphNodeSetParams(node, params))
        })?;
        self.run(self.driver.instantiate(graph)?, graph)
    }

    fn changed_in_executable(&self, before: Arguments, after: Arguments) -> Outcome {
        let (graph, node) = self.graph_of(before)?;
        let exec = self.driver.instantiate(graph)?;
        self.with_params(after, |params| {
            call!(self.driver, cuGraphExecKernelNodeSetParams(exec, node, params))
        })?;
        self.run(exec, graph)
    }

    fn changed_in_executable_as_any(&self, before: Arguments, after: Arguments) -> Outcome {
        let (graph, node) = self.graph_of(before)?;
        let exec = self.driver.instantiate(graph)?;
        self.with_any_params(after, |params| {
            call!(self.driver, cuGraphExecNodeSetParams(exec, node, params))
        })?;
        self.run(exec, graph)
    }

    fn updated(&self, before: Arguments, after: Arguments) -> Outcome {
        let (old, new) = (self.graph_of(before)?.0, self.graph_of(after)?.0);
        let (exec, mut result) = (self.driver.instantiate(old)?, [0_u64; 4]);
        call!(self.driver, cuGraphExecUpdate(exec, new, result.as_mut_ptr().cast()))?;
        self.driver.destroy_graph(old)?;
        self.run(exec, new)
    }

    fn in_a_child(&self, arguments: Arguments) -> Outcome {
        let (child, none) = (self.graph_of(arguments)?.0, std::ptr::null());
        let (driver, mut parent, mut node) = (self.driver, 0, 0);
        call!(driver, cuGraphCreate(&mut parent, 0))?;
        call!(driver, cuGraphAddChildGraphNode(&mut node, parent, none, 0, child))?;
        driver.destroy_graph(child)?;
        self.run(driver.instantiate(parent)?, parent)
    }

    fn captured(&self, arguments: Arguments) -> Outcome {
        let (driver, mut stream) = (self.driver, 0);
        call!(driver, cuStreamCreate(&mut stream, NON_BLOCKING))?;
        driver.begin_capture(stream, RELAXED)?;
        launch(driver, self.function, stream, &arguments, BY_LIST)?;
        let graph = driver.end_capture(stream)?;
        call!(driver, cuStreamDestroy(stream))?;
        self.run(driver.instantiate(graph)?, graph)
    }

    /// Returns a new graph and its only node.
    fn graph_of(&self, arguments: Arguments) -> Outcome<(u64, u64)> {
        let (driver, none) = (self.driver, std::ptr::null());
        let (mut graph, mut node) = (0, 0);
        call!(driver, cuGraphCreate(&mut graph, 0))?;
        self.with_params(arguments, |params| {
            call!(driver, cuGraphAddKernelNode(&mut node, graph, none, 0, params))
        })?;
        Ok((graph, node))
    }

    /// Launches the executable once, and destroys both while it may still run.
    fn run(&self, exec: u64, graph: u64) -> Outcome {
        self.driver.destroy_graph(graph)?;
        self.driver.launch_graph(exec, self.stream)?;
        self.driver.destroy_executable(exec)
    }

    fn with_params(
        &self,
        arguments: Arguments,
        call: impl FnOnce(*const std::ffi::c_void) -> Outcome,
    ) -> Outcome {
        let places = places_of(&arguments);
        // CUDA_KERNEL_NODE_PARAMS: one thread.
        let params = [self.function, ONES, ONES, ONES, 0, places.as_ptr() as u64, 0, 0, 0];
        call(params.as_ptr().cast())
    }

    fn with_any_params(
        &self,
        arguments: Arguments,
        call: impl FnOnce(*mut std::ffi::c_void) -> Outcome,
    ) -> Outcome {
        let places = places_of(&arguments);
        // CUgraphNodeParams: a kind, of which 0 is a kernel, then the same in a union.
        let mut params = [0; 34];
        let kernel = [self.function, ONES, ONES, ONES, 0, places.as_ptr() as u64];
        params[2..][..kernel.len()].copy_from_slice(&kernel);
        call(params.as_mut_ptr().cast())
    }
}

fn places_of(arguments: &Arguments) -> [*const u64; 4] {
    arguments.each_ref().map(|argument| &raw const *argument)
}

const ONES: u64 = 1 | 1 << 32;
const NON_BLOCKING: u32 = 1;
const RELAXED: u32 = 2;
