//! Findings of `Reach` in random graphs, checked against R1 to R3 applied until nothing changes.

use super::*;

/// For each node, the edges into it: from nodes before it, with what they promise.
struct Graph(Vec<Vec<(usize, EdgeKind)>>);

/// Findings by node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    seen: Vec<bool>,
    started: Vec<bool>,
    complete: Vec<bool>,
    loose: Vec<bool>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    fn kind(&mut self) -> EdgeKind {
        let kinds = [EdgeKind::Early, EdgeKind::Unknown, EdgeKind::Full, EdgeKind::Full];
        kinds[self.below(kinds.len())]
    }
}

impl Graph {
    fn new(random: &mut Random) -> Graph {
        let mut edges = Vec::new();
        for node in 0..2 + random.below(14) {
            let count = if node == 0 { 0 } else { random.below(4) };
            edges.push((0..count).map(|_| (random.below(node), random.kind())).collect());
        }
        Graph(edges)
    }

    fn ask(&self, node: Node, edges: &mut Vec<Edge>) -> bool {
        let into = self.0[node.0 as usize].iter();
        edges.extend(into.map(|(from, kind)| Edge { from: Node(*from as u64), kind: *kind }));
        true
    }

    fn found_from(&self, terminals: &[(usize, EdgeKind)]) -> Found {
        let none = alloc::vec![false; self.0.len()];
        let (seen, started, complete, loose) = (none.clone(), none.clone(), none.clone(), none);
        let mut found = Found { seen, started, complete, loose };
        for (node, kind) in terminals {
            found.seen[*node] = true;
            found.started[*node] |= *kind != EdgeKind::Unknown;
        }
        loop {
            let before = found.clone();
            for (node, edges) in self.0.iter().enumerate() {
                for (from, kind) in edges {
                    found.seen[*from] |= found.seen[node];
                    found.loose[*from] |= found.seen[node] && *kind != EdgeKind::Full;
                    found.started[*from] |= found.started[node] && *kind != EdgeKind::Unknown;
                    found.complete[*from] |= found.started[node] && *kind == EdgeKind::Full;
                }
            }
            if found == before {
                return found;
            }
        }
    }
}

/// Checks that `reach` agrees with `found` on every node.
fn judge(reach: &Reach, nodes: &mut Nodes, found: &Found) {
    for node in 0..found.seen.len() {
        let number = nodes.number(Node(node as u64)).expect("few nodes");
        assert_eq!(reach.is_complete(number), found.complete[node], "{node}: {reach:?} {found:?}");
        let loose = reach.loose_from(number).next() == Some(number);
        assert_eq!(loose, found.loose[node], "{node}: {reach:?} {found:?}");
    }
    assert_eq!(reach.loose_from(0).count(), found.loose.iter().filter(|loose| **loose).count());
}

#[test]
fn terminals_may_go_anywhere() {
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let graph = Graph::new(&mut random);
        let (mut reach, mut nodes) = (Reach::default(), Nodes::default());
        let mut before: Vec<(usize, EdgeKind)> = Vec::new();
        let mut watched = BTreeSet::new();
        for _ in 0..8 {
            let mut now: Vec<(usize, EdgeKind)> = Vec::new();
            for _ in 0..1 + random.below(3) {
                let node = random.below(graph.0.len());
                if now.iter().all(|(known, _)| *known != node) {
                    now.push((node, random.kind()));
                }
            }
            let edges: Vec<Edge> = now
                .iter()
                .map(|(from, kind)| Edge { from: Node(*from as u64), kind: *kind })
                .collect();
            let mut ask = |node: Node, edges: &mut Vec<Edge>| graph.ask(node, edges);
            let advance = reach.advance(&mut nodes, &edges, &mut ask).expect("all is known");
            let found = graph.found_from(&now);
            judge(&reach, &mut nodes, &found);
            let numbers: Vec<u32> = reach.terminals().collect();
            let handles: Vec<u64> = numbers.iter().map(|number| nodes.handle(*number).0).collect();
            assert_eq!(handles, now.iter().map(|(node, _)| *node as u64).collect::<Vec<_>>());

            let forward = now == before || before.iter().all(|(node, _)| found.started[*node]);
            // One of them may have been ordered after another one.
            let was_before_another = (0..before.len()).any(|place| {
                let mut others = before.clone();
                let (node, _) = others.remove(place);
                graph.found_from(&others).seen[node]
            });
            match advance {
                Advance::Forward => assert!(forward, "{before:?} {now:?}"),
                Advance::Elsewhere => assert!(!forward || was_before_another, "{before:?} {now:?}"),
            }

            let is_over =
                |node: &usize| found.complete[*node] || now.contains(&(*node, EdgeKind::Full));
            let over: BTreeSet<usize> = watched.iter().copied().filter(is_over).collect();
            let news = reach.take_news();
            assert_eq!(news.len(), over.len(), "each once: {news:?}");
            let news: BTreeSet<usize> =
                news.into_iter().map(|number| nodes.handle(number).0 as usize).collect();
            assert_eq!(news, over);
            watched.retain(|node| !over.contains(node));
            let node = random.below(graph.0.len());
            if !is_over(&node) {
                reach.watch(nodes.number(Node(node as u64)).expect("few nodes"));
                watched.insert(node);
            }
            before = now;
        }
    }
}

/// An added node stays a terminal only if no other node is ordered after it.
#[test]
fn terminals_are_added_if_they_add_ordering() {
    for seed in 0..3_000 {
        let mut random = Random(seed);
        let graph = Graph::new(&mut random);
        let (mut reach, mut nodes) = (Reach::default(), Nodes::default());
        let mut added = Vec::new();
        for _ in 0..8 {
            let node = random.below(graph.0.len());
            let number = nodes.number(Node(node as u64)).expect("few nodes");
            let mut ask = |node: Node, edges: &mut Vec<Edge>| graph.ask(node, edges);
            reach.add(&mut nodes, number, &mut ask).expect("all is known");
            added.push((node, EdgeKind::Full));
            let found = graph.found_from(&added);
            judge(&reach, &mut nodes, &found);
            let terminals: Vec<usize> =
                reach.terminals().map(|number| nodes.handle(number).0 as usize).collect();
            let kept: BTreeSet<usize> = added.iter().map(|(node, _)| *node).collect();
            let kept: BTreeSet<usize> =
                kept.into_iter().filter(|node| !found.complete[*node]).collect();
            assert_eq!(terminals.len(), kept.len(), "{terminals:?}");
            assert_eq!(terminals.into_iter().collect::<BTreeSet<_>>(), kept);
        }
    }
}
