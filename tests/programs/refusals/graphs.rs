//! Arguments of calls about captures and graphs.

use cachealloc_tests::driver::RELAXED;

use crate::scene::{KernelArguments, PLAIN_BYTES, Scene, at, out, place};

const ONE: u64 = 1 | 1 << 32;
const MEMORY_BYTES: u64 = 4 << 20;

impl Scene<'_> {
    pub fn of_graphs(&self, name: &str) -> Option<Vec<u64>> {
        let s = self;
        Some(match name {
            "cuStreamBeginCapture" => vec![s.captured],
            "cuStreamBeginCapture_v2" => vec![s.captured, u64::from(RELAXED)],
            "cuStreamBeginCaptureToGraph" => {
                vec![s.captured, s.graph(), 0, 0, 0, u64::from(RELAXED)]
            }
            "cuStreamBeginRecaptureToGraph" => {
                vec![s.captured, u64::from(RELAXED), s.graph(), 0, 0]
            }
            "cuStreamEndCapture" => vec![s.captured, out()],
            "cuStreamUpdateCaptureDependencies" => vec![s.captured, 0, 0, 1],
            "cuStreamUpdateCaptureDependencies_v2" => vec![s.captured, 0, 0, 0, 1],
            "cuGraphCreate" => vec![out(), 0],
            "cuGraphClone" => vec![out(), s.graph()],
            "cuGraphDestroy" => vec![s.graph()],
            "cuGraphDestroyNode" => vec![s.empty_node(s.graph())],
            "cuGraphAddEmptyNode" => vec![out(), s.graph(), 0, 0],
            "cuGraphAddChildGraphNode" => vec![out(), s.graph(), 0, 0, s.graph()],
            "cuGraphAddEventRecordNode" | "cuGraphAddEventWaitNode" => {
                vec![out(), s.graph(), 0, 0, s.event()]
            }
            "cuGraphAddHostNode" => {
                vec![out(), s.graph(), 0, 0, place(&[nothing as *const () as u64, 0])]
            }
            "cuGraphAddKernelNode" | "cuGraphAddKernelNode_v2" => {
                vec![out(), s.graph(), 0, 0, s.kernel_node()]
            }
            "cuGraphAddMemcpyNode" => vec![out(), s.graph(), 0, 0, s.copy_3d(), s.context],
            "cuGraphAddMemsetNode" => vec![out(), s.graph(), 0, 0, s.fill_node(), s.context],
            "cuGraphAddMemAllocNode" => vec![out(), s.graph(), 0, 0, place(&memory_node())],
            "cuGraphAddMemFreeNode" => {
                let (graph, node, memory) = (s.graph(), out(), place(&memory_node()));
                s.must("cuGraphAddMemAllocNode", &[node, graph, 0, 0, memory]);
                vec![out(), graph, node, 1, at(memory + 14 * 8)]
            }
            "cuGraphAddNode" => vec![out(), s.graph(), 0, 0, any_node()],
            "cuGraphAddNode_v2" | "cuGraphAddNode_v3" => {
                vec![out(), s.graph(), 0, 0, 0, any_node()]
            }
            "cuGraphAddDependencies" | "cuGraphAddDependencies_v2" => {
                let graph = s.graph();
                let nodes = [place(&[s.empty_node(graph)]), place(&[s.empty_node(graph)])];
                edge(name, graph, nodes)
            }
            "cuGraphRemoveDependencies" | "cuGraphRemoveDependencies_v2" => {
                let graph = s.graph();
                let nodes = [place(&[s.empty_node(graph)]), place(&[s.empty_node(graph)])];
                s.must("cuGraphAddDependencies", &edge("cuGraphAddDependencies", graph, nodes));
                edge(name, graph, nodes)
            }
            "cuGraphConditionalHandleCreate" => vec![out(), s.graph(), s.context, 0, 0],
            "cuGraphInstantiate" | "cuGraphInstantiate_v2" => {
                vec![out(), s.graph(), out(), out(), 64]
            }
            "cuGraphInstantiateWithFlags" => vec![out(), s.graph(), 0],
            "cuGraphInstantiateWithParams" => vec![out(), s.graph(), place(&[2, s.stream, 0, 0])],
            "cuGraphLaunch" | "cuGraphUpload" => vec![s.executable(s.graph()), s.stream],
            "cuGraphExecDestroy" => vec![s.executable(s.graph())],
            "cuGraphExecUpdate" => vec![s.executable(s.graph()), s.graph(), out(), out()],
            "cuGraphExecUpdate_v2" => vec![s.executable(s.graph()), s.graph(), out()],
            "cuGraphExecKernelNodeSetParams" | "cuGraphExecKernelNodeSetParams_v2" => {
                let (graph, node) = s.graph_with_kernel();
                vec![s.executable(graph), node, s.kernel_node()]
            }
            "cuGraphExecNodeSetParams" => {
                let (graph, node) = s.graph_with_kernel();
                vec![s.executable(graph), node, s.any_kernel_node()]
            }
            "cuGraphKernelNodeSetParams" | "cuGraphKernelNodeSetParams_v2" => {
                vec![s.graph_with_kernel().1, s.kernel_node()]
            }
            "cuGraphNodeSetParams" | "cuGraphNodeSetParams_v2" => {
                vec![s.graph_with_kernel().1, s.any_kernel_node()]
            }
            "cuDeviceGraphMemTrim" => vec![0],
            _ => return None,
        })
    }

    /// Returns a graph with a memory node, whose memory its last node frees.
    pub fn graph(&self) -> u64 {
        let d = self.d;
        let capture = || {
            d.begin_capture(self.captured, RELAXED)?;
            let memory = d.alloc_async(MEMORY_BYTES as usize, self.captured)?;
            KernelArguments::fill(memory, 64, 5, 0).launch(d, self.captured)?;
            d.free_async(memory, self.captured)?;
            d.end_capture(self.captured)
        };
        capture().expect("a graph")
    }

    fn executable(&self, graph: u64) -> u64 {
        self.d.instantiate(graph).expect("an executable graph")
    }

    fn empty_node(&self, graph: u64) -> u64 {
        let node = out();
        self.must("cuGraphAddEmptyNode", &[node, graph, 0, 0]);
        at(node)
    }

    fn kernel_node(&self) -> u64 {
        place(&self.kernel_params())
    }

    fn any_kernel_node(&self) -> u64 {
        place(&[&[0; 2], &self.kernel_params()[..]].concat())
    }

    fn kernel_params(&self) -> [u64; 9] {
        let arguments = KernelArguments::fill(self.plain, 64, 5, 0).list();
        [self.kernel, ONE, ONE, ONE, 0, arguments, 0, 0, 0]
    }

    /// Returns a graph and its kernel node.
    fn graph_with_kernel(&self) -> (u64, u64) {
        let (graph, node) = (self.graph(), out());
        self.must("cuGraphAddKernelNode", &[node, graph, 0, 0, self.kernel_node()]);
        (graph, at(node))
    }

    fn fill_node(&self) -> u64 {
        place(&[self.plain, PLAIN_BYTES as u64, 4 << 32, 16, 1])
    }
}

/// Memory of device 0 for a memory node: properties of a pool, access, size, and the field for the
/// address.
fn memory_node() -> [u64; 15] {
    let mut node = [0; 15];
    (node[0], node[1], node[13]) = (1, 1, MEMORY_BYTES);
    node
}

fn any_node() -> u64 {
    const MEMORY: u64 = 10;
    let mut node = [0; 32];
    node[0] = MEMORY;
    node[2..17].copy_from_slice(&memory_node());
    place(&node)
}

fn edge(name: &str, graph: u64, [from, to]: [u64; 2]) -> Vec<u64> {
    match name.ends_with("_v2") {
        true => vec![graph, from, to, 0, 1],
        false => vec![graph, from, to, 1],
    }
}

extern "C" fn nothing(_: u64) {}
