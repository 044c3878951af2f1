//! Modules, libraries, kernels and functions.
//!
//! A library is a module, and a kernel is its function: the handles are equivalent here.

use crate::abi::{Code, Handle, Outcome};
use crate::api::pointers::{In, Out, text};
use crate::call::Call;
use crate::model::contexts::module::{Function, Module};
use crate::model::memory::allocations::Kind;
use crate::model::world::{World, config};

driver! {
    fn cuModuleLoadData, cuModuleLoadFatBinary: (module: Out<Handle>, image: In<u32>) |call| {
        let ctx = loading_context(call)?;
        module.put(load(call, image, ctx)?)
    }

    fn cuModuleLoadDataEx: (
        module: Out<Handle>, image: In<u32>, count: u32, options: In<u32>, values: Out<usize>
    ) |call| {
        let ctx = loading_context(call)?;
        let loaded = load(call, image, ctx)?;
        let outcome = make_variables(call, loaded);
        let said_bytes = if outcome.is_ok() { LOG.len() } else { 0 };
        write_log(said_bytes, count as usize, options, values)?;
        outcome?;
        module.put(loaded)
    }

    fn cuModuleLoad: (module: Out<Handle>, path: In<u8>) |call| {
        let ctx = loading_context(call)?;
        module.put(load_file(call, path, ctx)?)
    }

    fn cuLibraryLoadData: (
        library: Out<Handle>, code: In<u32>, options: u64, values: u64, count: u32,
        library_options: u64, library_values: u64, library_count: u32
    ) |call| {
        library.put(load(call, code, 0)?)
    }

    fn cuLibraryLoadFromFile: (
        library: Out<Handle>, path: In<u8>, options: u64, values: u64, count: u32,
        library_options: u64, library_values: u64, library_count: u32
    ) |call| {
        library.put(load_file(call, path, 0)?)
    }

    fn cuModuleUnload, cuLibraryUnload: (module: Handle) |call| {
        let world = call.world();
        unload(world, module)
    }

    fn cuModuleGetFunction, cuLibraryGetKernel: (
        function: Out<Handle>, module: Handle, name: In<u8>
    ) |call| {
        let name = text(name)?;
        call.world().modules.modules.get(module)?;
        function.put(call.world().modules.function(module, &name).ok_or(Code::NOT_FOUND)?)
    }

    fn cuModuleGetGlobal_v2, cuLibraryGetGlobal: (
        address: Out<u64>, bytes: Out<usize>, module: Handle, name: In<u8>
    ) |call| {
        let (start, length) = global(call, module, &text(name)?)?;
        address.put_if_asked(start);
        bytes.put_if_asked(length as usize);
        Ok(())
    }

    // Only of variables that the host can access, too.
    fn cuLibraryGetManaged: (
        address: Out<u64>, bytes: Out<usize>, library: Handle, name: In<u8>
    ) |call| {
        let name = text(name)?;
        if !call.world().modules.modules.get(library)?.managed.contains(&name) {
            return Err(Code::NOT_FOUND);
        }
        let (start, length) = global(call, library, &name)?;
        address.put_if_asked(start);
        bytes.put_if_asked(length as usize);
        Ok(())
    }

    fn cuLibraryGetUnifiedFunction: (pointer: Out<u64>, library: Handle, symbol: In<u8>) |call| {
        let name = text(symbol)?;
        let function = call.world().modules.function(library, &name).ok_or(Code::NOT_FOUND)?;
        used(call, function)?;
        pointer.put(function)
    }

    fn cuModuleGetLoadingMode: (mode: Out<u32>) |call| {
        mode.put(2)
    }

    fn cuModuleGetFunctionCount, cuLibraryGetKernelCount: (count: Out<u32>, module: Handle) |call| {
        count.put(names(call, module)?.len() as u32)
    }

    fn cuModuleEnumerateFunctions, cuLibraryEnumerateKernels: (
        functions: Out<Handle>, count: u32, module: Handle
    ) |call| {
        for (index, name) in names(call, module)?.into_iter().take(count as usize).enumerate() {
            let function = call.world().modules.function(module, &name).ok_or(Code::NOT_FOUND)?;
            functions.put_at(index, function);
        }
        Ok(())
    }

    fn cuLibraryGetModule: (module: Out<Handle>, library: Handle) |call| {
        call.world().modules.modules.get(library)?;
        module.put(library)
    }

    fn cuKernelGetFunction: (function: Out<Handle>, kernel: Handle) |call| {
        used(call, kernel)?;
        function.put(kernel)
    }

    fn cuKernelGetLibrary, cuFuncGetModule: (library: Out<Handle>, kernel: Handle) |call| {
        library.put(find(call, kernel)?.module)
    }

    fn cuKernelGetName, cuFuncGetName: (name: Out<u64>, function: Handle) |call| {
        name.put(find(call, function)?.name.as_ptr() as u64)
    }

    fn cuKernelGetParamInfo, cuFuncGetParamInfo: (
        function: Handle, index: usize, offset: Out<usize>, bytes: Out<usize>
    ) |call| {
        let parameter = *find(call, function)?.parameters.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.put(parameter.offset)?;
        bytes.put_if_asked(parameter.bytes);
        Ok(())
    }

    fn cuKernelGetParamCount, cuFuncGetParamCount: (function: Handle, count: Out<usize>) |call| {
        count.put(find(call, function)?.parameters.len())
    }

    fn cuFuncGetAttribute: (value: Out<i32>, attribute: u32, function: Handle) |call| {
        used(call, function)?;
        value.put(function_attribute(attribute))
    }

    fn cuKernelGetAttribute: (value: Out<i32>, attribute: u32, kernel: Handle, device: i32) |call| {
        find(call, kernel)?;
        value.put(function_attribute(attribute))
    }

    fn cuFuncSetAttribute: (function: Handle, attribute: u32, value: i32) |call| {
        used(call, function)
    }

    fn cuKernelSetAttribute: (attribute: u32, value: i32, kernel: Handle, device: i32) |call| {
        find(call, kernel).map(drop)
    }

    fn cuFuncSetCacheConfig: (function: Handle, config: u32) |call| {
        find(call, function).map(drop)
    }

    fn cuKernelSetCacheConfig: (kernel: Handle, config: u32, device: i32) |call| {
        used(call, kernel)
    }

    fn cuFuncLoad: (function: Handle) |call| {
        used(call, function)
    }

    fn cuFuncIsLoaded: (state: Out<u32>, function: Handle) |call| {
        find(call, function)?;
        state.put(1)
    }
}

pub fn find(call: &mut Call, function: Handle) -> Outcome<&Function> {
    call.world().modules.functions.get(function)
}

/// Loads the function into the current context, if there is one.
pub fn used(call: &mut Call, function: Handle) -> Outcome {
    find(call, function)?;
    match call.context() {
        Ok(context) => call.world().load_function(function, context),
        Err(_) => Ok(()),
    }
}

fn loading_context(call: &mut Call) -> Outcome<u64> {
    let context = call.context()?;
    Ok(call.world().contexts.get(context)?.id)
}

fn load(call: &mut Call, image: In<u32>, ctx: u64) -> Outcome<Handle> {
    call.spend(LOAD_NS);
    let module = match image.get()? {
        ELF | FAT_BINARY | FAT_BINARY_WRAPPER => Module::any(),
        _ => from_text(&text(In::at(image.address()))?)?,
    };
    keep(call, Module { ctx, ..module })
}

/// A module takes memory of its context's device; that of a library is not modelled.
fn keep(call: &mut Call, mut module: Module) -> Outcome<Handle> {
    let world = call.world();
    if let Some(device) = device_of(world, module.ctx)
        && !world.memory.devices[device].take_pages(config().module_bytes)
    {
        return Err(Code::OUT_OF_MEMORY);
    }
    for texture in module.textures.values_mut() {
        *texture = world.texture_references.insert(0);
    }
    Ok(world.modules.modules.insert(module))
}

fn unload(world: &mut World, module: Handle) -> Outcome {
    world.unload_functions(module);
    let state = world.modules.unload(module).ok_or(Code::INVALID_HANDLE)?;
    state.global_addresses.values().for_each(|address| world.discard(*address));
    if let Some(device) = device_of(world, state.ctx) {
        world.memory.devices[device].give_pages(config().module_bytes);
    }
    Ok(())
}

fn device_of(world: &World, ctx: u64) -> Option<usize> {
    let handle = world.context_handles.get(&ctx)?;
    world.contexts.find(*handle).map(|context| context.device)
}

/// Allocates the module's variables. If that fails, the module is removed.
fn make_variables(call: &mut Call, module: Handle) -> Outcome {
    let globals = &call.world().modules.modules.get(module)?.globals;
    let names: Vec<String> = globals.keys().cloned().collect();
    let made = names.iter().try_for_each(|name| global(call, module, name).map(drop));
    if made.is_err() {
        unload(call.world(), module)?;
    }
    made
}

/// The sizes of log buffers are in-out: the capacity, then the bytes written.
fn write_log(said_bytes: usize, count: usize, options: In<u32>, values: Out<usize>) -> Outcome {
    let options = if options.is_null() { Vec::new() } else { options.list(count)? };
    for (index, _) in options.iter().enumerate().filter(|(_, option)| **option == LOG_BYTES) {
        let room = In::<usize>::at(values.address()).list(count)?[index];
        values.put_at(index, said_bytes.min(room));
    }
    Ok(())
}

fn load_file(call: &mut Call, path: In<u8>, ctx: u64) -> Outcome<Handle> {
    let bytes = std::fs::read(text(path)?).map_err(|_| Code::FILE_NOT_FOUND)?;
    let module = match std::str::from_utf8(&bytes) {
        Ok(text) if text.contains(".version") => from_text(text)?,
        _ => Module::any(),
    };
    keep(call, Module { ctx, ..module })
}

fn from_text(text: &str) -> Outcome<Module> {
    if text.contains(".version") { Ok(Module::from_ptx(text)) } else { Err(Code::INVALID_IMAGE) }
}

fn names(call: &mut Call, module: Handle) -> Outcome<Vec<String>> {
    let entries = &call.world().modules.modules.get(module)?.entries;
    let mut names: Vec<String> = entries.iter().flatten().map(|(name, _)| name.clone()).collect();
    names.sort();
    Ok(names)
}

/// Returns a global variable. Its memory is allocated when it is first requested.
fn global(call: &mut Call, module: Handle, name: &str) -> Outcome<(u64, u64)> {
    let context = call.context()?;
    let world = call.world();
    let state = world.modules.modules.get(module)?;
    let bytes = *state.globals.get(name).ok_or(Code::NOT_FOUND)?;
    if let Some(address) = state.global_addresses.get(name) {
        return Ok((*address, bytes));
    }
    let context = world.contexts.get(context)?;
    let kind = if state.managed.contains(name) { Kind::Managed } else { Kind::Global };
    let address = world.memory.alloc(bytes, kind, context.id, context.device)?;
    let state = world.modules.modules.get_mut(module)?;
    state.global_addresses.insert(name.to_string(), address);
    Ok((address, bytes))
}

fn function_attribute(attribute: u32) -> i32 {
    match attribute {
        MAX_THREADS => 1024,
        REGISTERS => 32,
        PTX_VERSION | BINARY_VERSION => 70,
        _ => 0,
    }
}

const LOAD_NS: u64 = 100_000;
/// `CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES`, and the log of the compiler.
const LOG_BYTES: u32 = 4;
const LOG: &str = "compiled";
const ELF: u32 = 0x464C_457F;
const FAT_BINARY: u32 = 0xBA55_ED50;
const FAT_BINARY_WRAPPER: u32 = 0x4662_43B1;
const MAX_THREADS: u32 = 0;
const REGISTERS: u32 = 4;
const PTX_VERSION: u32 = 5;
const BINARY_VERSION: u32 = 6;
