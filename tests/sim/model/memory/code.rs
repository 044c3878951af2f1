//! Device memory for running work: the code of functions that were used in a context, local memory
//! of kernels, heaps, streams and executable graphs. A function is loaded at its first use, as with
//! `CUDA_MODULE_LOADING=LAZY`. Local memory is allocated by the first launch in a context. A graph
//! takes some when it is instantiated, and again when it is first launched or uploaded. All of it
//! is released with its context; memory of an object of the program is released with that object.

use crate::abi::{Code, Handle, Outcome};
use crate::model::contexts::module::Function;
use crate::model::graphs::executable::Step;
use crate::model::graphs::graph::NodeKind;
use crate::model::world::{World, config};

/// `CU_LIMIT_PRINTF_FIFO_SIZE`, `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAPS: [u32; 2] = [1, 2];
const PAGE_BYTES: u64 = 2 << 20;

/// Memory for code and heaps of one context.
#[derive(Default)]
pub struct CodeMemory {
    pub bytes: u64,
    has_launched: bool,
}

/// Memory of a stream or an executable graph.
pub struct Object {
    context: u64,
    pieces: u64,
    is_ready: bool,
}

impl World {
    /// Allocates the memory of a new stream or executable graph.
    pub fn make_object(&mut self, object: Handle, context: Handle) -> Outcome {
        self.take_code(context, config().object_bytes)?;
        let context = self.contexts.get(context)?.id;
        self.objects.insert(object, Object { context, pieces: 1, is_ready: false });
        Ok(())
    }

    /// Allocates memory for an executable graph before its first launch or upload.
    pub fn make_ready(&mut self, executable: Handle, context: Handle) -> Outcome {
        if let Some(state) = self.graphs.executables.find(executable) {
            let address = |step: &Step| match step.kind {
                NodeKind::Alloc { address, .. } => Some(address),
                _ => None,
            };
            let nodes: Vec<u64> = state.steps.iter().filter_map(address).collect();
            self.back_graph_memory(&nodes)?;
        }
        if self.objects.get(&executable).is_some_and(|object| !object.is_ready) {
            self.take_code(context, config().object_bytes)?;
            let object = self.objects.get_mut(&executable).expect("looked up just now");
            (object.pieces, object.is_ready) = (2, true);
        }
        Ok(())
    }

    /// Releases the memory of an object that has ended.
    pub fn end_object(&mut self, object: Handle) {
        if let Some(Object { context, pieces, .. }) = self.objects.remove(&object) {
            (0..pieces).for_each(|_| self.give_code(context, config().object_bytes));
        }
    }

    /// Loads a function before its first use in this context.
    pub fn load_function(&mut self, function: Handle, context: Handle) -> Outcome {
        let id = self.contexts.get(context)?.id;
        if !self.modules.functions.get(function)?.loaded_in.contains(&id) {
            self.take_code(context, config().kernel_bytes)?;
            self.modules.functions.get_mut(function)?.loaded_in.push(id);
        }
        Ok(())
    }

    /// Prepares a launch of the function in this context.
    pub fn launch_function(&mut self, function: Handle, context: Handle) -> Outcome {
        self.load_function(function, context)?;
        if !self.contexts.get(context)?.code.has_launched {
            self.take_code(context, config().local_bytes)?;
            self.contexts.get_mut(context)?.code.has_launched = true;
        }
        Ok(())
    }

    /// Sets a limit. A heap takes the memory by which it grows.
    pub fn set_limit(&mut self, context: Handle, limit: u32, bytes: usize) -> Outcome {
        let before = self.contexts.get_mut(context)?.limits.insert(limit, bytes).unwrap_or(0);
        if HEAPS.contains(&limit) && config().limits_take {
            self.take_code(context, bytes.saturating_sub(before) as u64)?;
        }
        Ok(())
    }

    /// Forgets the functions of a module before its unload.
    pub fn unload_functions(&mut self, module: Handle) {
        let of_module = |function: &Function| function.module == module;
        for function in self.modules.functions.handles_of(of_module) {
            let Some(function) = self.modules.functions.find_mut(function) else { continue };
            for id in core::mem::take(&mut function.loaded_in) {
                self.give_code(id, config().kernel_bytes);
            }
        }
    }

    fn take_code(&mut self, context: Handle, bytes: u64) -> Outcome {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let context = self.contexts.get_mut(context)?;
        if !self.memory.devices[context.device].take_pages(bytes) {
            return Err(Code::OUT_OF_MEMORY);
        }
        context.code.bytes += bytes;
        Ok(())
    }

    fn give_code(&mut self, context: u64, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let handle = self.context_handles.get(&context);
        if let Some(context) = handle.and_then(|handle| self.contexts.find_mut(*handle)) {
            context.code.bytes -= bytes;
            self.memory.devices[context.device].give_pages(bytes);
        }
    }
}
