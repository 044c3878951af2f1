//! The cases from which the rules were drawn: those of PyTorch's pull request 158352, and our own.
//! Block x is used on two streams and freed on both (here: a free that is made on no stream).

use std::vec::Vec;

use super::super::std;
use super::graph::{Graph, Link, Promise};
use crate::order::reuse::{Edge, EdgeKind, EdgeUpdate, MARKERS_COUNT_MAX, Node, Reuse, Scope};
use crate::types::BlockId;

const X: BlockId = BlockId(7);
const S1: u64 = 0;
const S2: u64 = 1;

struct Case {
    graph: Graph,
    reuse: Reuse,
}

impl Case {
    /// Stream 2 forks from stream 1 after a kernel; x is allocated on stream 1 before, and used on
    /// both.
    fn used_on_both() -> Case {
        let mut case = Case { graph: Graph::new(), reuse: Reuse::new() };
        case.kernel(S1);
        case.wait(S2, S1);
        case
    }

    fn kernel(&mut self, stream: u64) -> Node {
        Node(self.graph.capture(stream as usize, None).expect("a stream that captures") as u64)
    }

    /// Makes one stream wait for everything that the other has captured so far.
    fn wait(&mut self, stream: u64, for_stream: u64) {
        self.graph.record(0, for_stream as usize).expect("it captures");
        self.graph.wait(stream as usize, 0).expect("the event is recorded");
        self.look(|look, _| look.waited(stream));
    }

    fn look<T>(&mut self, then: impl FnOnce(&mut crate::order::reuse::Look<'_>, &Graph) -> T) -> T {
        let graph = &self.graph;
        let mut look = self.reuse.look();
        for stream in [S1, S2] {
            if graph.streams[stream as usize].is_some() {
                let shown = graph.shown(stream as usize);
                look.stream(stream, &shown, |node, edges| graph.ask(node, edges));
            }
        }
        then(&mut look, graph)
    }

    fn free_x(&mut self, scope: Scope) {
        self.free(X, scope, Some(S1));
    }

    fn free(&mut self, block: BlockId, scope: Scope, home: Option<u64>) {
        self.look(|look, _| {
            // The block was fresh memory before anything was captured.
            let point = Reuse::new().look().allocation_point(None);
            look.freed(block, &point, scope, home);
        });
    }

    fn ready(&mut self) -> Vec<Scope> {
        let waiting_count = self.reuse.waiting_count();
        let ready = self.look(|look, graph| look.ready(|node, edges| graph.ask(node, edges)));
        assert_eq!(self.reuse.waiting_count(), waiting_count - ready.len());
        ready.into_iter().map(|(_, scope)| scope).collect()
    }

    fn mends(&mut self) -> [EdgeUpdate; 2] {
        self.look(|look, _| [S1, S2].map(|stream| look.edge_update(stream)))
    }

    fn set(&mut self, stream: u64, edges: &[Edge]) {
        let links = edges.iter().map(|edge| Link::full(edge.from.0 as usize));
        self.graph.streams[stream as usize] = Some(links.collect());
    }
}

#[test]
fn case_0_the_frees_are_not_ordered() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.kernel(S2);
    case.free_x(Scope::Everywhere);
    case.kernel(S1);
    assert_eq!(case.ready(), []);
}

#[test]
fn case_1_stream_1_is_ordered_after_both_frees() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.kernel(S2);
    case.free_x(Scope::Everywhere);
    case.wait(S1, S2);
    // Nothing else has been captured yet: the next node depends on both terminals.
    assert_eq!(case.ready(), [Scope::Everywhere], "stream 2 was joined");
}

/// A branch of one node, the first one captured since the branch began.
#[test]
fn case_1_where_only_stream_2_uses_it() {
    let mut case = Case::used_on_both();
    case.kernel(S2);
    case.free_x(Scope::Everywhere);
    case.wait(S1, S2);
    assert_eq!(case.ready(), [Scope::Everywhere]);
}

#[test]
fn case_2_stream_2_is_not_ordered_after_the_free_of_stream_1() {
    let mut case = Case::used_on_both();
    let used_1 = case.kernel(S1);
    let used_2 = case.kernel(S2);
    case.free_x(Scope::Everywhere);
    case.wait(S1, S2);
    case.kernel(S1);
    assert_eq!(case.ready(), [Scope::Everywhere]);
    // The next user of x may use it on stream 2 as well, so stream 2 is ordered after the free.
    let [first, second] = case.mends();
    assert_eq!(first, EdgeUpdate::Nothing);
    let EdgeUpdate::Set(edges) = second else { panic!("stream 2 is not mended: {second:?}") };
    let from: Vec<Node> = edges.iter().map(|edge| edge.from).collect();
    assert_eq!(from, [used_1, used_2]);
    case.set(S2, &edges);
    assert_eq!(case.mends()[1], EdgeUpdate::FullOrder);
    case.kernel(S2);
    assert_eq!(case.mends()[1], EdgeUpdate::Nothing);
}

/// Everything that stream 2 had captured is complete where that node is.
#[test]
fn case_2_one_node_suffices() {
    let mut case = Case::used_on_both();
    case.kernel(S2);
    case.wait(S1, S2);
    let used = case.kernel(S1);
    case.free_x(Scope::Everywhere);
    case.kernel(S1);
    assert_eq!(case.ready(), [Scope::Everywhere]);
    let EdgeUpdate::Set(edges) = &case.mends()[1] else { panic!("stream 2 is not mended") };
    assert_eq!(edges.iter().map(|edge| edge.from).collect::<Vec<_>>(), [used]);
}

#[test]
fn case_2_while_stream_2_runs_on() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.kernel(S2);
    case.free_x(Scope::Everywhere);
    case.wait(S1, S2);
    case.kernel(S1);
    // Stream 2 is no longer ordered after stream 1. Ordering it so would stop it from running in
    // parallel with stream 1.
    case.kernel(S2);
    assert_eq!(case.ready(), [Scope::Stream(S1)]);
}

#[test]
fn case_3_all_streams_are_ordered_after_both_frees() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.kernel(S2);
    case.free_x(Scope::Everywhere);
    case.wait(S1, S2);
    case.kernel(S1);
    case.wait(S2, S1);
    case.kernel(S2);
    assert_eq!(case.ready(), [Scope::Everywhere]);
    assert_eq!(case.mends(), [EdgeUpdate::Nothing, EdgeUpdate::Nothing]);
}

/// The last use precedes the join, but only the free shows that, and the free comes after the join:
/// the markers are the nodes that the streams had captured by then.
#[test]
fn case_4_freed_after_a_join() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.kernel(S2);
    case.wait(S1, S2);
    case.kernel(S1);
    case.kernel(S2);
    case.free_x(Scope::Everywhere);
    case.kernel(S1);
    assert_eq!(case.ready(), [], "the missed opportunity");
    case.wait(S1, S2);
    assert_eq!(case.ready(), [Scope::Everywhere], "the next join");
}

#[test]
fn freed_after_a_join_in_the_order_of_a_stream() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.kernel(S2);
    case.wait(S1, S2);
    case.kernel(S1);
    case.kernel(S2);
    // The free comes after the join, so stream 2's later work is not ordered after a use of x.
    case.free_x(Scope::Stream(S1));
    assert_eq!(case.ready(), [Scope::Stream(S1)]);
}

#[test]
fn a_branch_that_is_about_to_begin_keeps_its_place() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.free_x(Scope::Everywhere);
    case.kernel(S1);
    assert_eq!(
        case.ready(),
        [Scope::Stream(S1)],
        "stream 2 is behind stream 1, but has only waited"
    );
}

#[test]
fn blocks_freed_on_a_joined_stream_are_free_everywhere() {
    let mut case = Case::used_on_both();
    case.kernel(S2);
    case.free_x(Scope::Stream(S2));
    assert_eq!(case.ready(), [Scope::Stream(S2)]);
    let joined =
        |case: &mut Case| case.look(|look, graph| look.is_joined(S2, |n, e| graph.ask(n, e)));
    assert!(!joined(&mut case));
    case.wait(S1, S2);
    assert!(joined(&mut case));
}

/// An edge of unknown kind proves neither that its first node has started nor that any node before
/// that one is complete.
#[test]
fn nodes_after_an_edge_of_unknown_kind_prove_nothing() {
    for between in [false, true] {
        let mut case = Case::used_on_both();
        case.kernel(S1);
        case.free_x(Scope::Stream(S1));
        let last = case.kernel(S1).0 as usize;
        let link = Link { from: last, promise: Promise::NONE };
        case.graph.streams[S1 as usize] = Some(std::vec![link]);
        if between {
            case.kernel(S1);
            case.kernel(S1);
        }
        assert_eq!(case.ready(), [], "with nodes behind it: {between}");
    }
}

/// The stream is in no `waited`: it is seen for the first time.
#[test]
fn a_stream_that_is_shown_first_has_waited() {
    let mut case = Case { graph: Graph::new(), reuse: Reuse::new() };
    case.kernel(S1);
    case.graph.record(0, S1 as usize).expect("it captures");
    case.kernel(S1);
    case.free_x(Scope::Everywhere);
    case.kernel(S1);
    case.graph.wait(S2 as usize, 0).expect("the event is recorded");
    assert_eq!(case.ready(), [Scope::Stream(S1)], "its branch is about to begin");
}

#[test]
fn a_block_without_a_use_is_free_at_once() {
    let mut case = Case::used_on_both();
    let point = case.look(|look, _| look.allocation_point(None));
    case.look(|look, _| look.freed(X, &point, Scope::Everywhere, None));
    assert_eq!(case.ready(), [Scope::Everywhere]);
}

#[test]
fn a_stream_that_is_not_shown_stops_everything() {
    let mut case = Case::used_on_both();
    case.kernel(S1);
    case.free_x(Scope::Stream(S1));
    let graph = &case.graph;
    let mut look = case.reuse.look();
    look.stream(S1, &graph.shown(0), |node, edges| graph.ask(node, edges));
    assert_eq!(look.ready(|node, edges| graph.ask(node, edges)), []);
    assert_eq!(case.ready(), [Scope::Stream(S1)]);
}

#[test]
fn a_graph_that_is_not_shown_is_opaque_and_what_was_proven_stays() {
    let mut case = Case::used_on_both();
    let used = case.kernel(S1);
    case.free_x(Scope::Stream(S1));
    assert_eq!(case.ready(), [Scope::Stream(S1)]);
    case.kernel(S1);
    let shown = case.graph.shown(0);
    case.reuse.look().stream(S1, &shown, |_, _| false);
    assert!(case.reuse.is_opaque());
    case.free_x(Scope::Stream(S1));
    assert_eq!(case.ready(), []);
    assert_eq!(case.reuse.waiting_count(), 0, "it waits for the end");
    let [EdgeUpdate::Set(edges), EdgeUpdate::Nothing] = case.mends() else {
        panic!("{:?}", case.mends())
    };
    assert!(edges.iter().any(|edge| edge.from == used));
    assert!(shown.iter().all(|edge| edges.contains(edge)), "it stays behind its own work");
}

/// Kind of an edge by the port of its first node, the port of its second node, and its type: as the
/// driver documents, and nothing else.
#[test]
fn only_what_an_edge_is_known_to_promise_counts() {
    for (from_port, to_port, kind) in
        (0..64).map(|number| (number / 16, number / 4 % 4, number % 4))
    {
        let promised = match [from_port, to_port, kind] {
            [0, 0, 0] => EdgeKind::Full,
            [1, 0, 1] | [2, 0, 1] => EdgeKind::Early,
            _ => EdgeKind::Unknown,
        };
        assert_eq!(EdgeKind::from_data(from_port, to_port, kind), promised);
    }
}

/// Beyond this number of markers, no completion is asked for.
#[test]
fn maximum_number_of_markers() {
    for (count, ready) in
        [(MARKERS_COUNT_MAX, &[Scope::Stream(S1)][..]), (MARKERS_COUNT_MAX + 1, &[])]
    {
        let mut case = Case::used_on_both();
        let edge = |from| Edge { from, kind: EdgeKind::Full };
        let edges: Vec<Edge> = (0..count).map(|_| edge(case.kernel(S1))).collect();
        case.set(S1, &edges);
        case.free_x(Scope::Stream(S1));
        case.kernel(S1);
        assert_eq!(case.ready(), ready);
    }
}

/// One node is ordered after the blocks handed out on this stream, and after those handed out to
/// any.
#[test]
fn hidden_graph_has_each_node_once() {
    let mut case = Case::used_on_both();
    let used = case.kernel(S1);
    case.free_x(Scope::Stream(S1));
    case.free(BlockId(8), Scope::Everywhere, None);
    assert_eq!(case.ready(), [Scope::Stream(S1)]);
    case.wait(S2, S1);
    case.kernel(S1);
    case.kernel(S2);
    assert_eq!(case.ready(), [Scope::Everywhere]);
    case.kernel(S1);
    let shown = case.graph.shown(0);
    case.reuse.look().stream(S1, &shown, |_, _| false);
    for mend in case.mends() {
        let EdgeUpdate::Set(edges) = mend else { panic!("{mend:?}") };
        let mut from: Vec<Node> = edges.iter().map(|edge| edge.from).collect();
        assert!(from.contains(&used), "{from:?}");
        from.sort_unstable();
        assert!(from.is_sorted_by(|one, next| one < next), "{from:?}");
    }
}
