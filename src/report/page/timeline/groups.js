// The bands of the timeline: blocks by call site, function and so on (keys.js). The largest at the
// peak get their own bands, until they make up 95 % of it, and so do those that the reader chooses;
// the rest is one band. Sums of each band are kept at every 1024th moment, so that any
// moment is near.

// Distinguishable with any colour blindness (after Paul Tol's "muted"); the
// dark ones are lighter on a dark ground.
const COLORS_LIGHT = ['#3b6fb6', '#cc6677', '#ddaa33', '#117733', '#88ccee', '#aa4499', '#44aa99', '#882255', '#999933'];
const COLORS_DARK = ['#6f9ee0', '#dd7788', '#e0b450', '#4da866', '#88ccee', '#c267b2', '#44bba8', '#c2557f', '#b3b34d'];
// Minimum number of bands, if there are as many groups,
const NAMED_LEAST = COLORS_LIGHT.length;
// and the share of the peak that the bands cover, up to the maximum number of bands.
const SHARE_NAMED = 0.95;
const NAMED_MOST = 240;
const STRIDE = 1024;

function palette() {
  return dark.matches ? COLORS_DARK : COLORS_LIGHT;
}

// Beyond the palette its colours come again, lighter and darker in turn.
function band_color(group) {
  const color = palette()[group % NAMED_LEAST];
  const round = Math.floor(group / NAMED_LEAST);
  if (round === 0) {
    return color;
  }
  const towards = round % 2 === 1 ? 255 : 0;
  const share = Math.min(0.6, 0.2 + 0.1 * Math.floor(round / 2));
  const mixed = [1, 3, 5].map(at => Math.round(parseInt(color.slice(at, at + 2), 16) * (1 - share) + towards * share));
  return `#${mixed.map(part => part.toString(16).padStart(2, '0')).join('')}`;
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
  // `chosen`: keys that get bands whatever their size.
  constructor(story, kind, chosen = []) {
    this.story = story;
    this.kind = kind;
    this.chosen = chosen;
    const {of_stack, of_row, parts} = keys_of(story, kind);
    [this.key_of_stack, this.key_of_row, this.all_parts, this.keys] = [of_stack, of_row, parts, parts.length];
    this.rank();
    this.keep_sums();
  }

  key(row) {
    return this.key_of_row ? this.key_of_row[row] : this.key_of_stack[this.story.stack[row]];
  }

  of_row(row) {
    return this.group_of_key[this.key(row)];
  }

  // Key of blocks of which only the stack is known.
  of_stack(stack) {
    return this.key_of_stack ? this.group_of_key[this.key_of_stack[stack]] : this.named;
  }

  // The largest at the peak get a name; where that leaves room, what was allocated most.
  rank() {
    const {story, keys} = this;
    const peak = this.peak = new Float64Array(keys);
    const all = new Float64Array(keys);
    for (let row = 0; row < story.rows; row++) {
      const key = this.key(row);
      peak[key] += story.from[row] <= story.peak && story.until[row] >= story.peak ? story.bytes[row] : 0;
      all[key] += story.from[row] > 0 ? story.bytes[row] : 0;
    }
    const order = Array.from(peak.keys()).filter(key => peak[key] + all[key] > 0)
      .sort((left, right) => peak[right] - peak[left] || all[right] - all[left]);
    const wanted = SHARE_NAMED * story.total[story.peak];
    let [count, sum] = [0, 0];
    while (count < Math.min(order.length, NAMED_MOST) && (count < NAMED_LEAST || sum < wanted)) {
      sum += peak[order[count++]];
    }
    const is_chosen = new Set(this.chosen);
    this.named_keys = [...order.slice(0, count), ...this.chosen.filter(key => !order.slice(0, count).includes(key))];
    this.other_keys = order.slice(count).filter(key => !is_chosen.has(key));
    this.named = this.named_keys.length;
    this.others = this.other_keys.length;
    this.group_of_key = new Uint8Array(keys).fill(this.named);
    this.named_keys.forEach((key, group) => { this.group_of_key[key] = group; });
    this.parts = this.named_keys.map(key => this.all_parts[key]);
    this.parts.push([plural(this.others, 'other'), '']);
    this.names = this.parts.map(parts => parts.filter(Boolean).join(' '));
    this.count = this.named + 1;
  }

  color(group) {
    return group < this.named ? band_color(group) : other_color();
  }

  keep_sums() {
    const {story, count} = this;
    const now = new Float64Array(count);
    for (let row = 0; row < story.rows; row++) {
      if (story.from[row] === 0) {
        now[this.of_row(row)] += story.bytes[row];
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
      now[this.of_row(row - 1)] += story.bytes[row - 1];
    } else if (row < 0) {
      now[this.of_row(-row - 1)] -= story.bytes[-row - 1];
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

// The other groups: the reader may choose some, which then get their own bands.
class OtherBands {
  constructor(timeline, section, before) {
    this.timeline = timeline;
    this.search = element('input', {type: 'search', id: 'others-search', placeholder: 'function or file', 'aria-label': 'Search among the others',
      input: () => this.fill()});
    this.text = element('span', {class: 'soft', role: 'status'});
    this.list = element('ul', {class: 'legend', id: 'others'});
    this.box = element('details', {id: 'others-box', hidden: true}, element('summary', {}, this.text),
      element('div', {class: 'controls'}, this.search), this.list);
    section.insertBefore(this.box, before);
  }

  set(groups) {
    this.groups = groups;
    this.box.hidden = groups.others === 0;
    const {story, peak} = groups;
    const share = groups.other_keys.reduce((sum, key) => sum + peak[key], 0);
    this.text.textContent = `${plural(groups.others, 'other')} have ${share_text(share, story.total[story.peak])} of the peak: choose some to show them as bands`;
    this.fill();
  }

  fill() {
    const {groups, timeline} = this;
    const needle = this.search.value.trim().toLowerCase();
    const name = key => groups.all_parts[key].filter(Boolean).join(' ');
    const fits = groups.other_keys.filter(key => needle === '' || name(key).toLowerCase().includes(needle));
    this.list.replaceChildren(...fits.slice(0, OTHERS_SHOWN).map(key => element('li', {},
      element('button', {type: 'button', title: name(key), click: () => timeline.add_band(key)}, 'Add'),
      element('span', {}, name(key)), element('b', {}, bytes_text(groups.peak[key])))),
    fits.length > OTHERS_SHOWN ? element('li', {class: 'soft'}, `and ${count_text(fits.length - OTHERS_SHOWN)} more`) : '');
  }
}

const OTHERS_SHOWN = 24;
