//! Graphs as data: creation, copies, edges, user objects.

use super::capture::read_edges;
use crate::abi::{Code, EdgeData, Handle, HostFn, Outcome};
use crate::api::pointers::{In, Out};
use crate::call::Call;
use crate::model::graphs::graph::Edge;
use crate::model::graphs::user_object::UserObject;
use std::sync::Arc;

driver! {
    fn cuGraphCreate: (graph: Out<Handle>, flags: u32) |call| {
        let created = call.world().create_graph();
        graph.put(created)
    }

    fn cuGraphDestroy: (graph: Handle) |call| {
        call.world().destroy_graph(graph)
    }

    fn cuGraphClone: (clone: Out<Handle>, graph: Handle) |call| {
        clone.put(call.world().clone_graph(graph)?)
    }

    fn cuGraphGetNodes: (graph: Handle, nodes: Out<Handle>, count: Out<usize>) |call| {
        let found = nodes_of(call, graph)?;
        put_list(nodes, count, &found)
    }

    fn cuGraphGetRootNodes: (graph: Handle, nodes: Out<Handle>, count: Out<usize>) |call| {
        let all = nodes_of(call, graph)?;
        let world = call.world();
        let root = |node: &Handle| world.graphs.nodes.find(*node).is_some_and(|n| n.before.is_empty());
        let found: Vec<Handle> = all.into_iter().filter(root).collect();
        put_list(nodes, count, &found)
    }

    fn cuGraphGetEdges: (
        graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>
    ) |call| {
        edges(call, graph, (from, to, Out::at(0)), count)
    }

    fn cuGraphGetEdges_v2: (
        graph: Handle, from: Out<Handle>, to: Out<Handle>, data: Out<EdgeData>, count: Out<usize>
    ) |call| {
        edges(call, graph, (from, to, data), count)
    }

    fn cuGraphAddDependencies: (
        graph: Handle, from: In<Handle>, to: In<Handle>, count: usize
    ) |call| {
        add_edges(call, graph, read_edges(from, In::at(0), count)?, to.list(count)?)
    }

    fn cuGraphAddDependencies_v2: (
        graph: Handle, from: In<Handle>, to: In<Handle>, data: In<EdgeData>, count: usize
    ) |call| {
        add_edges(call, graph, read_edges(from, data, count)?, to.list(count)?)
    }

    fn cuGraphRemoveDependencies: (
        graph: Handle, from: In<Handle>, to: In<Handle>, count: usize
    ) |call| {
        remove_edges(call, from.list(count)?, to.list(count)?)
    }

    fn cuGraphRemoveDependencies_v2: (
        graph: Handle, from: In<Handle>, to: In<Handle>, data: In<EdgeData>, count: usize
    ) |call| {
        remove_edges(call, from.list(count)?, to.list(count)?)
    }

    fn cuGraphGetId: (graph: Handle, id: Out<u32>) |call| {
        id.put(call.world().graphs.graphs.get(graph)?.id as u32)
    }

    fn cuUserObjectCreate: (
        object: Out<Handle>, data: u64, destructor: HostFn, references: u32, flags: u32
    ) |call| {
        let destructor = destructor.ok_or(Code::INVALID_VALUE)? as usize;
        if references == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let created = Arc::new(UserObject::new(data as usize, destructor));
        object.put(call.world().graphs.objects.insert((created, references)))
    }

    fn cuUserObjectRetain: (object: Handle, count: u32) |call| {
        let world = call.world();
        world.graphs.objects.find_mut(object).ok_or(Code::INVALID_VALUE)?.1 += count;
        Ok(())
    }

    fn cuUserObjectRelease: (object: Handle, count: u32) |call| {
        release_object(call, object, count)
    }

    fn cuGraphRetainUserObject: (graph: Handle, object: Handle, count: u32, flags: u32) |call| {
        let world = call.world();
        let known = world.graphs.objects.find(object).ok_or(Code::INVALID_VALUE)?.0.clone();
        let state = world.graphs.graphs.find_mut(graph).ok_or(Code::INVALID_VALUE)?;
        state.objects.add(object, known, count);
        if flags & MOVE != 0 {
            release_object(call, object, count)?;
        }
        Ok(())
    }

    fn cuGraphReleaseUserObject: (graph: Handle, object: Handle, count: u32) |call| {
        let state = call.world().graphs.graphs.find_mut(graph).ok_or(Code::INVALID_VALUE)?;
        if state.objects.remove(object, count) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}

const MOVE: u32 = 1;

fn nodes_of(call: &mut Call, graph: Handle) -> Outcome<Vec<Handle>> {
    let state = call.world().graphs.graphs.find(graph).ok_or(Code::INVALID_VALUE)?;
    Ok(state.nodes.clone())
}

/// Writes a list like the driver: only the count if there is no buffer for the items.
pub fn put_list<T: Copy>(items: Out<T>, count: Out<usize>, found: &[T]) -> Outcome {
    if items.is_null() {
        return count.put(found.len());
    }
    let room = count.get()?;
    for (index, item) in found.iter().take(room).enumerate() {
        items.put_at(index, *item);
    }
    count.put(found.len().min(room))
}

/// Fails if a caller that does not request edge data would miss it.
pub fn refuse_lossy<'a>(data: Out<EdgeData>, mut edges: impl Iterator<Item = &'a Edge>) -> Outcome {
    let lossy = data.is_null() && edges.any(|edge| edge.programmatic);
    if lossy { Err(Code::LOSSY_QUERY) } else { Ok(()) }
}

fn edges(
    call: &mut Call,
    graph: Handle,
    places: (Out<Handle>, Out<Handle>, Out<EdgeData>),
    count: Out<usize>,
) -> Outcome {
    let (from, to, data) = places;
    let nodes = nodes_of(call, graph)?;
    let world = call.world();
    let mut found: Vec<(Edge, Handle)> = Vec::new();
    for node in nodes {
        found.extend(world.graphs.nodes.get(node)?.before.iter().map(|edge| (*edge, node)));
    }
    if from.is_null() || to.is_null() {
        return count.put(found.len());
    }
    refuse_lossy(data, found.iter().map(|(edge, _)| edge))?;
    let room = count.get()?;
    for (index, (edge, node)) in found.iter().take(room).enumerate() {
        from.put_at(index, edge.node);
        to.put_at(index, *node);
        if !data.is_null() {
            data.put_at(index, edge.data());
        }
    }
    count.put(found.len().min(room))
}

fn add_edges(call: &mut Call, graph: Handle, from: Vec<Edge>, to: Vec<Handle>) -> Outcome {
    let world = call.world();
    for (edge, node) in from.into_iter().zip(to) {
        let other = world.graphs.nodes.find(edge.node).map(|node| node.graph);
        let node = world.graphs.nodes.find_mut(node).ok_or(Code::INVALID_VALUE)?;
        let repeated = node.before.iter().any(|known| known.node == edge.node);
        if other != Some(graph) || node.graph != graph || repeated {
            return Err(Code::INVALID_VALUE);
        }
        node.before.push(edge);
    }
    Ok(())
}

fn remove_edges(call: &mut Call, from: Vec<Handle>, to: Vec<Handle>) -> Outcome {
    for (from, to) in from.into_iter().zip(to) {
        let node = call.world().graphs.nodes.find_mut(to).ok_or(Code::INVALID_VALUE)?;
        node.before.retain(|edge| edge.node != from);
    }
    Ok(())
}

fn release_object(call: &mut Call, object: Handle, count: u32) -> Outcome {
    let objects = &mut call.world().graphs.objects;
    let held = &mut objects.find_mut(object).ok_or(Code::INVALID_VALUE)?.1;
    *held = held.checked_sub(count).ok_or(Code::INVALID_VALUE)?;
    if *held == 0 {
        objects.remove(object);
    }
    Ok(())
}
