//! [81] Host memory whose address a kernel gets as an argument in a way that its launch does not
//! show, and stores in memory of the device. A later kernel finds it there.

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
    hazard!(Full, pinned_argument_set_before_the_launch),
    hazard!(Full, pinned_argument_of_several_launches),
];

fn pinned_argument_set_before_the_launch(d: &Driver) -> Verdict {
    kept(d, |kernel, arguments| {
        for (index, value) in arguments.into_iter().enumerate() {
            let offset = index as u64 * WORD;
            call_words(d, "cuParamSetv", &[kernel, offset, place(&[value]), WORD])?;
        }
        call_words(d, "cuParamSetSize", &[kernel, 4 * WORD])?;
        call_words(d, "cuFuncSetBlockShape", &[kernel, 1, 1, 1])?;
        call_words(d, "cuLaunchGrid", &[kernel, 1, 1])
    })
}

fn pinned_argument_of_several_launches(d: &Driver) -> Verdict {
    let stream = d.stream()?;
    kept(d, |kernel, arguments| {
        let params = place(&[kernel, ONES, ONES, ONES, 0, stream, list(arguments)]);
        call_words(d, "cuLaunchCooperativeKernelMultiDevice", &[params, 1, 0])
    })
}

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
    set_in_a_graph(d, "cuGraphKernelNodeSetParams", place)
}

fn pinned_argument_set_in_a_graph_of_any_kind(d: &Driver) -> Verdict {
    set_in_a_graph(d, "cuGraphNodeSetParams", of_any_kind)
}

fn pinned_argument_set_in_an_executable(d: &Driver) -> Verdict {
    set_in_an_executable(d, "cuGraphExecKernelNodeSetParams", place)
}

fn pinned_argument_set_in_an_executable_of_any_kind(d: &Driver) -> Verdict {
    set_in_an_executable(d, "cuGraphExecNodeSetParams", of_any_kind)
}

fn set_in_a_graph(d: &Driver, set: &str, params: fn(&[u64]) -> u64) -> Verdict {
    found_later(d, |graph, harmless, stores| {
        let node = add(d, graph, harmless)?;
        call_words(d, set, &[node, params(stores)])?;
        instantiate(d, graph)
    })
}

fn set_in_an_executable(d: &Driver, set: &str, params: fn(&[u64]) -> u64) -> Verdict {
    found_later(d, |graph, harmless, stores| {
        let node = add(d, graph, harmless)?;
        let executable = instantiate(d, graph)?;
        call_words(d, set, &[executable, node, params(stores)])?;
        Ok(executable)
    })
}

/// Runs an executable that `make` makes from an empty graph and the parameters of two kernel nodes,
/// of which the second stores the address of host memory.
fn found_later(d: &Driver, make: impl FnOnce(u64, &[u64], &[u64]) -> Outcome<u64>) -> Verdict {
    kept(d, |kernel, arguments| {
        // One thread.
        let node = |arguments| [kernel, ONES, ONES, ONES, 0, list(arguments)];
        let [table, bytes, ..] = arguments;
        let graph = made_by(d, "cuGraphCreate", &[0])?;
        let executable = make(graph, &node([table, bytes, 1, 0]), &node(arguments))?;
        call_words(d, "cuGraphLaunch", &[executable, 0])
    })
}

/// Runs a kernel, with arguments with which it stores the address of host memory.
fn kept(d: &Driver, run: impl FnOnce(u64, [u64; 4]) -> Outcome) -> Verdict {
    let (table, word) = (d.alloc(SMALL)?, d.pinned(4096)?);
    d.write_words(table, &[0, WORD, 7])?;
    run(d.kernel("late_fill")?, [table, WORD, word, 0])?;
    d.synchronize()?;
    free_something(d)?;
    look_after(d, |s| d.launch("indirect_fill", s, &[table, 0]), || d.host_read(word) == 7)
}

fn list(arguments: [u64; 4]) -> u64 {
    let first = place(&arguments);
    place(&[0, 1, 2, 3].map(|index| first + index * WORD))
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
