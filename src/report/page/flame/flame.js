// The flame graph: bytes held or allocated by each stack, from the outermost frame (above) to the
// innermost. Inverted, it begins with the allocating frame, with its callers below. For programs in
// Python it shows Python's frames at first, and of native frames only those that Python called.
// `tree` (tree.js) is the tree shown.

const FRAME_HEIGHT = 18;

class Flame {
  constructor(section) {
    this.what = 'peak';
    this.measure = 'bytes';
    this.needle = '';
    const what = chooser('Show what is', [['peak', 'live at the peak'], ['end', 'live at the end'], ['chosen', 'live at the chosen time'],
      ['allocated', 'allocated in total'], ['temporary', 'temporary']], value => this.choose(value));
    what.select.id = 'flame-what';
    this.what_select = what.select;
    this.frames = null; // until the reader chooses
    this.inverted = false;
    this.trees = {};
    const frames = chooser('Frames', [['all', 'all'], ['named', 'with a name'], ['folded', 'Python, native ones folded'], ['python', 'Python only']], value => {
      this.frames = value;
      this.add_up();
    });
    frames.select.id = 'flame-frames';
    this.frames_select = frames.select;
    const measure = chooser('by', [['bytes', 'bytes'], ['blocks', 'number of blocks']], value => {
      this.measure = value;
      this.add_up();
    });
    this.measure_select = measure.select;
    this.invert = element('input', {type: 'checkbox', id: 'flame-inverted', change: () => {
      this.inverted = this.invert.checked;
      this.add_up();
    }});
    this.search = element('input', {
      type: 'search', id: 'flame-search', placeholder: 'function or file', 'aria-label': 'Search in the flame graph',
      input: () => {
        this.needle = this.search.value.toLowerCase();
        this.draw();
      },
    });
    this.found = element('span', {class: 'soft', role: 'status', id: 'flame-found'});
    const key = (color, text) => element('li', {}, element('i', {class: 'swatch', style: `background: ${color}`}), text);
    this.key = () => [key(dark.matches ? '#3f72ad' : '#9cc3ee', 'Python'), key(dark.matches ? '#8a6420' : '#f0cf8e', 'native')];
    this.legend = element('ul', {class: 'legend'});
    this.path = element('p', {class: 'soft', id: 'flame-path'});
    const chart = element('div', {class: 'chart'});
    section.append(element('div', {class: 'controls'}, what.label, measure.label, frames.label,
      element('label', {}, this.invert, ' inverted'), this.search, this.found,
      element('button', {click: () => this.zoom(ROOT)}, 'Show all')), this.path, chart, this.legend,
    element('p', {class: 'soft'}, 'Click a frame to zoom in, or one above it to zoom out. Keyboard: arrows, Enter, Escape.'));
    this.surface = new Surface(chart, 100, 'Flame graph');
    listen_to_flame(this);
  }

  set(story) {
    this.story = story;
    this.moment = null;
    const has_python = story.data.frames.python.includes(1);
    this.frames ??= has_python ? 'folded' : 'all';
    this.frames_select.value = this.frames;
    this.frames_select.options[2].disabled = this.frames_select.options[3].disabled = !has_python;
    this.what_select.options[2].disabled = true;
    this.choose(this.what === 'chosen' ? 'peak' : this.what);
  }

  choose_moment(moment) {
    this.moment = moment;
    this.what_select.options[2].disabled = false;
    this.choose('chosen');
  }

  choose(what) {
    this.what = what;
    this.what_select.value = what;
    this.add_up();
  }

  add_up() {
    const {story, what} = this;
    const moment = what === 'peak' ? story.peak : what === 'end' ? story.events : this.moment;
    const all = what === 'allocated' ? story.allocated_by_stack()
      : what === 'temporary' ? story.by_stack(row => story.shows(row, TEMPORARY)) : story.alive_by_stack(moment);
    const sums = all[this.measure];
    const shown = this.trees[this.frames] ??= shown_tree(story.data, this.frames);
    const ends = new Float64Array(shown.parent.length + 1);
    story.data.stacks.node.forEach((node, stack) => { ends[shown.shown_of[node]] += sums[stack]; });
    const tree = this.tree = this.inverted ? inverted_tree(shown, ends, story.data.frames.name.length) : shown;
    // Number 0 is the root; the node after the last stands for blocks of which no frame is shown.
    this.no_stack = tree.parent.length + 1;
    this.sums = new Float64Array(tree.parent.length + 2);
    ends.forEach((sum, node) => { this.sums[node === ROOT ? this.no_stack : this.inverted ? tree.end_of[node] : node] += sum; });
    for (let node = tree.parent.length; node > 0; node--) {
      this.sums[tree.parent[node - 1]] += this.sums[node];
    }
    this.sums[ROOT] += this.sums[this.no_stack];
    this.children = new Map();
    for (let node = 1; node <= this.no_stack; node++) {
      if (this.sums[node] > 0) {
        const parent = node === this.no_stack ? ROOT : tree.parent[node - 1];
        const list = this.children.get(parent);
        list ? list.push(node) : this.children.set(parent, [node]);
      }
    }
    this.children.forEach(list => list.sort((left, right) => this.sums[right] - this.sums[left]));
    this.zoom(ROOT);
  }

  zoom(node) {
    this.top = node;
    this.focus = node;
    this.draw();
  }

  parent(node) {
    return node === ROOT || node === this.no_stack ? ROOT : this.tree.parent[node - 1];
  }

  amount(node) {
    return this.measure === 'bytes' ? bytes_text(this.sums[node]) : plural(this.sums[node], 'block');
  }

  name(node) {
    return node === ROOT ? 'all' : node === this.no_stack ? '(no frame)' : this.story.data.frame_short(this.tree.frame[node - 1]);
  }

  // The rectangles that are wide enough to see: [node, depth, left, width].
  layout() {
    const boxes = [];
    const above = [];
    for (let node = this.top; node !== ROOT; node = this.parent(node)) {
      above.unshift(this.parent(node));
    }
    above.forEach((node, depth) => boxes.push([node, depth, 0, this.surface.width]));
    const lay = (node, depth, left, width) => {
      boxes.push([node, depth, left, width]);
      let x = left;
      for (const child of depth < ROWS_MOST ? this.children.get(node) ?? [] : []) {
        const share = (this.sums[child] / this.sums[node]) * width;
        if (share < 0.4) {
          break; // the others are narrower still
        }
        lay(child, depth + 1, x, share);
        x += share;
      }
    };
    if (this.sums[this.top] > 0) {
      lay(this.top, above.length, 0, this.surface.width);
    }
    return boxes;
  }

  draw() {
    this.boxes = this.layout();
    this.surface.height = (this.boxes.reduce((most, box) => Math.max(most, box[1]), 0) + 1) * FRAME_HEIGHT + 2;
    this.legend.replaceChildren(...this.key());
    this.tell_found();
    this.surface.ask(pen => paint_flame(this, pen));
  }

  matches(node) {
    if (this.needle === '' || node === ROOT || node === this.no_stack) {
      return false;
    }
    this.matching ??= {needle: null};
    if (this.matching.needle !== this.needle) {
      const {data} = this.story;
      this.matching = {needle: this.needle, frames: Uint8Array.from(data.frames.name, (_, frame) =>
        `${data.frame_name(frame)} ${data.frame_place(frame)}`.toLowerCase().includes(this.needle))};
    }
    return this.matching.frames[this.tree.frame[node - 1]] === 1;
  }

  // How much the matching frames hold together; a frame below a matching one is in it already.
  tell_found() {
    if (this.needle === '') {
      this.found.textContent = '';
      return;
    }
    let sum = 0;
    const walk = node => {
      if (this.matches(node)) {
        sum += this.sums[node];
      } else {
        (this.children.get(node) ?? []).forEach(walk);
      }
    };
    walk(ROOT);
    this.found.textContent = `found in ${share_text(sum, this.sums[ROOT])}`;
  }

  box_at([x, y]) {
    const depth = Math.floor(y / FRAME_HEIGHT);
    return this.boxes.find(box => box[1] === depth && x >= box[2] && x < box[2] + box[3]);
  }
}
