// The trees that the flame graph draws.
//
// The stacks of the file are one tree already: a node names its parent, parents come first. Where
// frames are left out, what they called moves up to what called them, and equal frames become one.

const ROOT = 0;
const ROWS_MOST = 120;

// The tree of the frames that are shown; `shown_of` says where each node of the whole tree went.
function shown_tree(data, which) {
  const {nodes, frames} = data;
  const is_python = node => frames.python[nodes.frame[node - 1]] === 1;
  const calls_python = which === 'folded' ? callers_of(nodes, is_python) : null;
  const is_shown = node => {
    switch (which) {
      case 'all': return true;
      case 'named': return data.frame_name(nodes.frame[node - 1]) !== '??';
      case 'python': return is_python(node);
    }
    // The first native frame of those that call no Python again: the function that Python called.
    const above = nodes.parent[node - 1];
    return is_python(node) || (!calls_python[node] && (above === ROOT || is_python(above) || calls_python[above] === 1));
  };
  const shown_of = new Uint32Array(nodes.parent.length + 1);
  const tree = {parent: [], frame: [], shown_of};
  const known = new Map();
  for (let node = 1; node <= nodes.parent.length; node++) {
    const above = shown_of[nodes.parent[node - 1]];
    if (!is_shown(node)) {
      shown_of[node] = above;
      continue;
    }
    shown_of[node] = child_of(tree, known, above, nodes.frame[node - 1], frames.name.length);
  }
  return tree;
}

// Marks nodes that have a frame of this kind below them.
function callers_of(nodes, is_kind) {
  const calls = new Uint8Array(nodes.parent.length + 1);
  for (let node = nodes.parent.length; node > 0; node--) {
    calls[nodes.parent[node - 1]] |= calls[node] | (is_kind(node) ? 1 : 0);
  }
  return calls;
}

// The same stacks from their innermost frames outward, of those that `ends` gives something;
// `end_of` says where each node of the tree went. No deeper than what is drawn: one frame of a long
// stack would begin as many paths as it has frames.
function inverted_tree({parent, frame}, ends, frames_count) {
  const tree = {parent: [], frame: [], end_of: new Uint32Array(parent.length + 1)};
  const known = new Map();
  for (let node = 1; node <= parent.length; node++) {
    if (ends[node] > 0) {
      let at = ROOT;
      let depth = 0;
      for (let up = node; up !== ROOT && depth < ROWS_MOST; up = parent[up - 1], depth++) {
        at = child_of(tree, known, at, frame[up - 1], frames_count);
      }
      tree.end_of[node] = at;
    }
  }
  return tree;
}

// Returns the child with this frame, and creates it if it does not exist.
function child_of(tree, known, above, frame, frames_count) {
  const key = above * frames_count + frame;
  let child = known.get(key);
  if (child === undefined) {
    tree.parent.push(above);
    tree.frame.push(frame);
    child = tree.parent.length;
    known.set(key, child);
  }
  return child;
}
