// The bands of the timeline: blocks by library or by call site, the largest ones by name and the rest
// together. Sums of each band are kept at every 1024th moment, so that any moment is near.

// Chosen to be told apart by readers with any colour blindness (after Paul Tol's "muted"); the
// dark ones are lighter on a dark ground.
const COLORS_LIGHT = ['#3b6fb6', '#cc6677', '#ddaa33', '#117733', '#88ccee', '#aa4499', '#44aa99', '#882255', '#999933'];
const COLORS_DARK = ['#6f9ee0', '#dd7788', '#e0b450', '#4da866', '#88ccee', '#c267b2', '#44bba8', '#c2557f', '#b3b34d'];
const NAMED_MOST = COLORS_LIGHT.length;
const STRIDE = 1024;

function palette() {
  return dark.matches ? COLORS_DARK : COLORS_LIGHT;
}

function other_color() {
  return dark.matches ? '#5a626b' : '#c3c8ce';
}

// Frames of Python and native frames are blue and amber: also apart in brightness.
function frame_color(data, frame) {
  if (data.frames.python[frame]) {
    return dark.matches ? '#3f72ad' : '#9cc3ee';
  }
  return dark.matches ? '#8a6420' : '#f0cf8e';
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

class Groups {
  constructor(story, kind) {
    this.story = story;
    const {data} = story;
    const of_stack = kind === 'library' ? data.stacks.library : data.stacks.site;
    const names = kind === 'library' ? data.libraries.name : data.sites.place;
    this.name_of = key => (kind === 'library' ? data.library_name(key) : `${data.site_place(key)}  ${data.site_function(key)}`);
    this.rank(of_stack, names.length);
    this.of_stack = Uint8Array.from(of_stack, key => this.group_of_key[key]);
    this.keep_sums();
  }

  // The largest at the peak get a name; where that leaves room, what was allocated most.
  rank(of_stack, keys) {
    const {story} = this;
    const peak = new Float64Array(keys);
    const all = new Float64Array(keys);
    const alive = story.alive_by_stack(story.peak).bytes;
    const allocated = story.allocated_by_stack().bytes;
    of_stack.forEach((key, stack) => {
      peak[key] += alive[stack];
      all[key] += allocated[stack];
    });
    const order = Array.from(peak.keys()).filter(key => peak[key] + all[key] > 0)
      .sort((left, right) => peak[right] - peak[left] || all[right] - all[left]);
    const named = order.slice(0, NAMED_MOST);
    this.group_of_key = new Uint8Array(keys).fill(named.length);
    named.forEach((key, group) => { this.group_of_key[key] = group; });
    this.names = named.map(this.name_of);
    if (order.length > named.length) {
      this.names.push(`${plural(order.length - named.length, 'other')}`);
    }
    this.count = named.length + 1;
    this.named = named.length;
  }

  color(group) {
    return group < this.named ? palette()[group] : other_color();
  }

  keep_sums() {
    const {story, count} = this;
    const now = new Float64Array(count);
    for (let row = 0; row < story.rows; row++) {
      if (story.from[row] === 0) {
        now[this.of_stack[story.stack[row]]] += story.bytes[row];
      }
    }
    this.sums = new Float64Array((Math.floor(story.events / STRIDE) + 1) * count);
    for (let moment = 0; moment <= story.events; moment++) {
      if (moment % STRIDE === 0) {
        this.sums.set(now, (moment / STRIDE) * count);
      }
      if (moment < story.events) {
        this.step(now, moment);
      }
    }
  }

  step(now, event) {
    const {story} = this;
    const row = story.row_of_event[event];
    if (row > 0) {
      now[this.of_stack[story.stack[row - 1]]] += story.bytes[row - 1];
    } else if (row < 0) {
      now[this.of_stack[story.stack[-row - 1]]] -= story.bytes[-row - 1];
    }
  }

  // The bytes of each band at this moment, into `now`.
  at(moment, now = new Float64Array(this.count)) {
    const mark = Math.floor(moment / STRIDE);
    now.set(this.sums.subarray(mark * this.count, (mark + 1) * this.count));
    for (let event = mark * STRIDE; event < moment; event++) {
      this.step(now, event);
    }
    return now;
  }
}
