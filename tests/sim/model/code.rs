//! What a device holds for what runs on it: the code of functions that were used in a context, the local memory of
//! kernels, and heaps. A function is loaded where it is first used, as with `CUDA_MODULE_LOADING=LAZY`; local memory comes
//! with the first launch in a context. All of it goes with its context, and a function's with its module.

use super::world::{World, config};
use crate::abi::{Code, Handle, Outcome};

/// `CU_LIMIT_PRINTF_FIFO_SIZE`, `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAPS: [u32; 2] = [1, 2];
const PAGE_BYTES: u64 = 2 << 20;

/// Of one context.
#[derive(Default)]
pub struct CodeMemory {
    pub bytes: u64,
    has_launched: bool,
}

impl World {
    /// The function is about to be used in this context.
    pub fn load_function(&mut self, function: Handle, context: Handle) -> Outcome {
        let id = self.contexts.get(context)?.id;
        if !self.modules.functions.get(function)?.loaded_in.contains(&id) {
            self.take_code(context, config().kernel_bytes)?;
            self.modules.functions.get_mut(function)?.loaded_in.push(id);
        }
        Ok(())
    }

    /// The function is about to be launched in this context.
    pub fn launch_function(&mut self, function: Handle, context: Handle) -> Outcome {
        self.load_function(function, context)?;
        if !self.contexts.get(context)?.code.has_launched {
            self.take_code(context, config().local_bytes)?;
            self.contexts.get_mut(context)?.code.has_launched = true;
        }
        Ok(())
    }

    /// A heap that grows takes what it grows by.
    pub fn set_limit(&mut self, context: Handle, limit: u32, bytes: usize) -> Outcome {
        let before = self.contexts.get_mut(context)?.limits.insert(limit, bytes).unwrap_or(0);
        if HEAPS.contains(&limit) && config().limits_take {
            self.take_code(context, bytes.saturating_sub(before) as u64)?;
        }
        Ok(())
    }

    /// The module is about to go.
    pub fn unload_functions(&mut self, module: Handle) {
        let of_module = |function: &super::module::Function| function.module == module;
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
