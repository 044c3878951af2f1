//! The cost of asking a capture: `cargo test --release -p cachealloc-core cost -- --ignored
//! --nocapture`. Times are printed, never checked. The tests check that each node is asked for its
//! edges once.

use std::time::Instant;
use std::vec;
use std::vec::Vec;

use super::super::std;
use crate::order::reuse::{Edge, EdgeKind, Look, Node, Reuse, Scope};
use crate::types::BlockId;

/// A capture without an underlying model.
struct Capture {
    nodes: Vec<Vec<Edge>>,
    streams: Vec<Vec<Edge>>,
    reuse: Reuse,
    asked: usize,
}

impl Capture {
    /// Begins all streams after one node.
    fn new(streams: usize) -> Capture {
        let root = vec![edge(0)];
        let (nodes, streams) = (vec![vec![]], vec![root; streams]);
        let mut capture = Capture { nodes, streams, reuse: Reuse::new(), asked: 0 };
        let ids = 1..capture.streams.len() as u64;
        capture.look(|look, _| ids.for_each(|id| look.waited(id)));
        capture
    }

    fn kernel(&mut self, stream: usize) {
        let before = core::mem::replace(&mut self.streams[stream], vec![edge(self.nodes.len())]);
        self.nodes.push(before);
    }

    fn join(&mut self, stream: usize, other: usize) {
        let edges = self.streams[other].clone();
        self.streams[stream].extend(edges);
    }

    fn look<T>(&mut self, then: impl FnOnce(&mut Look<'_>, &[Vec<Edge>]) -> T) -> T {
        let Capture { nodes, streams, reuse, asked } = self;
        let mut look = reuse.look();
        for (id, terminals) in streams.iter().enumerate() {
            look.stream(id as u64, terminals, |node, edges| {
                *asked += 1;
                edges.extend_from_slice(&nodes[node.0 as usize]);
                true
            });
        }
        then(&mut look, nodes)
    }

    fn free(&mut self, block: usize, scope: Scope) {
        self.look(|look, _| {
            let point = Reuse::new().look().allocation_point(None);
            look.freed(BlockId(block as u32), &point, scope, None);
        });
    }

    fn ready(&mut self) -> usize {
        self.look(|look, nodes| {
            let ask = |node: Node, edges: &mut Vec<Edge>| {
                edges.extend_from_slice(&nodes[node.0 as usize]);
                true
            };
            look.ready(ask).len()
        })
    }
}

fn edge(node: usize) -> Edge {
    Edge { from: Node(node as u64), kind: EdgeKind::Full }
}

/// A kernel, a free and an allocation in turn.
fn chain(count: usize) -> Capture {
    let mut capture = Capture::new(1);
    for block in 0..count {
        capture.kernel(0);
        capture.free(block, Scope::Everywhere);
        assert_eq!(capture.ready(), 1);
    }
    capture
}

/// A chain on eight streams in turn, which are joined at the end: nothing is free before.
fn wide(count: usize) -> Capture {
    let mut capture = Capture::new(8);
    for block in 0..count {
        capture.kernel(block % 8);
        capture.free(block, Scope::Everywhere);
        assert_eq!(capture.ready(), 0);
    }
    (1..8).for_each(|other| capture.join(0, other));
    assert_eq!(capture.ready(), count);
    capture
}

/// Forks of eight streams that are joined before the next fork: the blocks of each are free then.
fn forks(count: usize) -> Capture {
    let mut capture = Capture::new(8);
    for block in 0..count.div_ceil(8) {
        for stream in 1..8 {
            capture.join(stream, 0);
            capture.kernel(stream);
            capture.free(block * 8 + stream, Scope::Stream(stream as u64));
        }
        (1..8).for_each(|other| capture.join(0, other));
        capture.kernel(0);
        assert_eq!(capture.ready(), 7);
    }
    capture
}

/// One node after all others, one free, one allocation.
fn fan(count: usize) -> Capture {
    let mut capture = Capture::new(1);
    capture.nodes.extend((0..count).map(|_| vec![edge(0)]));
    capture.streams[0] = (1..=count).map(edge).collect();
    capture.kernel(0);
    capture.free(0, Scope::Everywhere);
    assert_eq!(capture.ready(), 1);
    capture
}

type Shape = fn(usize) -> Capture;

const SHAPES: [(&str, Shape); 4] =
    [("chain", chain), ("wide", wide), ("forks", forks), ("fan", fan)];

fn run(counts: &[usize]) {
    for (name, shape) in SHAPES {
        for &count in counts {
            let begun = Instant::now();
            let capture = shape(count);
            let ns = begun.elapsed().as_nanos() / count as u128;
            std::println!("{name:5} {count:7} nodes: {ns:6} ns for each");
            assert!(capture.asked <= capture.nodes.len(), "{name}: a node was asked for twice");
        }
    }
}

#[test]
fn each_node_is_asked_once() {
    run(&[10, 1_000]);
}

#[test]
#[ignore = "for its figures"]
fn cost() {
    run(&[10, 1_000, 100_000]);
}
