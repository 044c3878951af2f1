//! [81] Host memory whose address a kernel of a graph made by hand gets as an argument, and stores
//! in memory of the device. A later kernel finds it there.

use cachealloc_tests::driver::{Driver, Outcome};

use crate::tools::*;
use crate::visible::indirect::free_something;
use crate::visible::results::look_after;

pub const ALL: &[Hazard] = &[
    hazard!(Full, pinned_argument_of_a_node),
    hazard!(Full, pinned_argument_of_a_node_of_any_kind),
    hazard!(Full, pinned_argument_set_in_a_graph),
    hazard!(Full, pinned_argument_set_in_a_graph_of_any_kind),
    hazard!(Full, pinned_argument_set_in_an_executable),
    hazard!(Full, pinned_argument_set_in_an_executable_of_any_kind),
];

fn pinned_argument_of_a_node(d: &Driver) -> Verdict {
    found_later(d, |graph, _, stores| {
        add(d, graph, stores)?;
        instantiate(d, graph)
    })
}

fn pinned_argument_of_a_node_of_any_kind(d: &Driver) -> Verdict {
    found_later(d, |graph, _, stores| {
        made_by(d, "cuGraphAddNode_v2", &[graph, 0, 0, 0, of_any_kind(stores)])?;
        instantiate(d, graph)
    })
}

fn pinned_argument_set_in_a_graph(d: &Driver) -> Verdict {
    found_later(d, |graph, harmless, stores| {
        let node = add(d, graph, harmless)?;
        call_words(d, "cuGraphKernelNodeSetParams", &[node, place(stores)])?;
        instantiate(d, graph)
    })
}

fn pinned_argument_set_in_a_graph_of_any_kind(d: &Driver) -> Verdict {
    found_later(d, |graph, harmless, stores| {
        let node = add(d, graph, harmless)?;
        call_words(d, "cuGraphNodeSetParams", &[node, of_any_kind(stores)])?;
        instantiate(d, graph)
    })
}

fn pinned_argument_set_in_an_executable(d: &Driver) -> Verdict {
    found_later(d, |graph, harmless, stores| {
        let node = add(d, graph, harmless)?;
        let executable = instantiate(d, graph)?;
        let set = [executable, node, place(stores)];
        call_words(d, "cuGraphExecKernelNodeSetParams", &set)?;
        Ok(executable)
    })
}

fn pinned_argument_set_in_an_executable_of_any_kind(d: &Driver) -> Verdict {
    found_later(d, |graph, harmless, stores| {
        let node = add(d, graph, harmless)?;
        let executable = instantiate(d, graph)?;
        let set = [executable, node, of_any_kind(stores)];
        call_words(d, "cuGraphExecNodeSetParams", &set)?;
        Ok(executable)
    })
}

/// Runs an executable that `make` makes from an empty graph and the parameters of two kernel nodes,
/// of which the second stores the address of host memory.
fn found_later(d: &Driver, make: impl FnOnce(u64, &[u64], &[u64]) -> Outcome<u64>) -> Verdict {
    let (table, word) = (d.alloc(SMALL)?, d.pinned(4096)?);
    d.write_words(table, &[0, WORD, 7])?;
    let kernel = d.kernel("late_fill")?;
    let node = |value| {
        let arguments = place(&[table, WORD, value, 0]);
        let list = place(&[arguments, arguments + 8, arguments + 16, arguments + 24]);
        // One thread.
        [kernel, ONES, ONES, ONES, 0, list]
    };
    let graph = made_by(d, "cuGraphCreate", &[0])?;
    let executable = make(graph, &node(1), &node(word))?;
    call_words(d, "cuGraphLaunch", &[executable, 0])?;
    d.synchronize()?;
    free_something(d)?;
    look_after(d, |s| d.launch("indirect_fill", s, &[table, 0]), || d.host_read(word) == 7)
}

const ONES: u64 = 1 | 1 << 32;

fn add(d: &Driver, graph: u64, params: &[u64]) -> Outcome<u64> {
    made_by(d, "cuGraphAddKernelNode", &[graph, 0, 0, place(params)])
}

/// Returns `CUgraphNodeParams` for a kernel.
fn of_any_kind(params: &[u64]) -> u64 {
    const HEAD: [u64; 2] = [0, 0];
    place(&[&HEAD, params].concat())
}

fn instantiate(d: &Driver, graph: u64) -> Outcome<u64> {
    made_by(d, "cuGraphInstantiateWithFlags", &[graph, 0])
}
