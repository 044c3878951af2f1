//! Kernels that a program adds to a graph by hand. The graph's launch does not show their
//! arguments, so these are searched when the node is made or changed (`ordering::kernels`).

use core::ffi::c_void;

use cachealloc_core::rules::{Rule, rule_holds};

use crate::driver::sys::{CuResult, GraphHandle, NODE_KERNEL};
use crate::functions::{Function, id};
use crate::hooks::{Real, capture, common, is_accepted, launch};

/// The kind and three reserved numbers precede the parameters specific to a kind.
pub(crate) const HEAD_WORDS: usize = 2;

/// `cuGraphAddKernelNode(node, graph, .., CUDA_KERNEL_NODE_PARAMS *)`.
pub(crate) fn add(
    function: &'static Function,
    graph: GraphHandle,
    params: *const usize,
    real: impl Real,
) -> CuResult {
    searched(function, params, capture::edit_graph(function, graph, real))
}

/// `cuGraphKernelNodeSetParams(node, CUDA_KERNEL_NODE_PARAMS *)`,
/// `cuGraphExecKernelNodeSetParams(executable, node, CUDA_KERNEL_NODE_PARAMS *)`.
pub(crate) fn set(function: &'static Function, params: *const usize, real: impl Real) -> CuResult {
    searched(function, params, common::pass(function, real))
}

/// `cuGraphNodeSetParams(node, CUgraphNodeParams *)`, `cuGraphExecNodeSetParams(executable, node,
/// CUgraphNodeParams *)`: change a node of any kind.
pub(crate) fn set_any(
    function: &'static Function,
    params: *const usize,
    real: impl Real,
) -> CuResult {
    // SAFETY: null, or the program's struct, which begins with a number of this size.
    let kind = unsafe { params.cast::<u32>().as_ref() };
    match kind {
        // SAFETY: as above; the struct is longer than its head.
        Some(&NODE_KERNEL) => set(function, unsafe { params.add(HEAD_WORDS) }, real),
        _ => common::pass(function, real),
    }
}

/// Searches the arguments of a node that the driver has accepted, and returns its answer.
fn searched(function: &'static Function, params: *const usize, code: CuResult) -> CuResult {
    if is_accepted(code) && !params.is_null() && rule_holds(Rule::NodesAreScanned) {
        search(function, params);
    }
    code
}

fn search(function: &'static Function, params: *const usize) {
    const ARGUMENTS_WORD: usize = 5;
    const EXTRA_WORD: usize = 6;
    /// Names the kernel if the first word does not.
    const KERNEL_WORD: usize = 7;
    let first_version = [
        id::cuGraphAddKernelNode,
        id::cuGraphKernelNodeSetParams,
        id::cuGraphExecKernelNodeSetParams,
    ];
    // SAFETY: the program's struct, which the driver has read as well; its first version ends
    // before the last of these words.
    let [kernel, arguments, extra] = unsafe {
        let mut kernel = params.read();
        if kernel == 0 && !first_version.contains(&function.id) {
            kernel = params.add(KERNEL_WORD).read();
        }
        [kernel, params.add(ARGUMENTS_WORD).read(), params.add(EXTRA_WORD).read()]
    };
    let pointer = |word: usize| core::ptr::with_exposed_provenance_mut::<*mut c_void>(word);
    launch::search(function, kernel, pointer(arguments), pointer(extra));
}
