// Memory over time: bands of blocks, what is reserved as a line above.
//
// One column of pixels shows the highest moment in it, so no peak is lost however far one is out;
// and drawing costs the same for a thousand events as for ten million (Highest, Groups.at).

const LEFT = 68;
const BOTTOM = 22;
// The least that the height may stand for.
const BYTES_LEAST = 4096;
// Above the plot three lines of text: the peak, the chosen moment, failed allocations.
const TOP = 46;

class Timeline {
  constructor(section, choose) {
    this.choose = choose; // called with the moment that the reader clicks
    this.kind = 'site';
    this.axis = 'time';
    const groups = chooser('Stacked by', STACKED_BY, value => this.regroup(value));
    const axis = chooser('Across', [['time', 'time'], ['order', 'order of events']], value => this.set_axis(value));
    this.chosen_text = element('span', {class: 'soft', id: 'chosen'});
    const by_finger = window.matchMedia('(pointer: coarse)').matches;
    this.note = element('p', {class: 'soft', id: 'timeline-note'}, by_finger
      ? 'Tap to choose a moment for the flame graph, the events and the segments, and a block. Drag sideways to zoom ' +
        'into a part, until each block has an outline, or up and down to scroll the page; the buttons zoom and move.'
      : 'Click to choose a moment for the flame graph, the events and the segments, and a block. Drag to zoom, or use the wheel with ' +
        'Ctrl or Shift, until each block has an outline; double-click to show everything. Keyboard: left and right move, + and - zoom, ' +
        '0 shows everything, Enter chooses the middle, up and down choose a block, whose details Enter holds.');
    const button = (id, text, title, act) => element('button', {id: `timeline-${id}`, type: 'button', title, 'aria-label': title, click: act}, text);
    this.chart = element('div', {class: 'chart'});
    section.append(
      element('div', {class: 'controls'}, groups.label, axis.label,
        element('span', {class: 'buttons'},
          button('in', '+', 'Zoom in', () => this.zoom(ZOOM_STEP)), button('out', '\u2212', 'Zoom out', () => this.zoom(1 / ZOOM_STEP)),
          button('left', '\u2190', 'Earlier', () => this.move(-0.5)), button('right', '\u2192', 'Later', () => this.move(0.5)),
          button('taller', '\u2195', 'Taller: fewer bytes, each block higher', () => this.make_taller()), button('all', 'Show all', 'Show all of the time, at its whole height', () => this.show_all())), this.chosen_text),
      this.chart, this.below = element('div'), this.legend = element('ul', {class: 'legend', id: 'legend'}), this.note);
    this.others = new OtherBands(this, section, this.note);
    this.groups_select = groups.select;
    this.axis_select = axis.select;
    this.surface = new Surface(this.chart, 350, 'Memory over time');
    this.lane = new Lane(this, this.below);
    this.brush = element('div', {class: 'brush', hidden: true});
    this.chart.append(this.brush);
    this.pointer = null;
    [this.hovered, this.block] = [-1, -1]; // rows
    listen_to_timeline(this);
  }

  set(story) {
    this.story = story;
    this.chosen = null;
    [this.hovered, this.block] = [-1, -1];
    this.chosen_text.textContent = '';
    this.lane.set(story);
    this.regroup(this.kind);
    this.show_all();
  }

  // Moves by a share of the visible part.
  move(share) {
    const span = this.view[1] - this.view[0];
    this.look_at(this.view[0] + share * span, span);
  }

  regroup(kind) {
    this.kind = kind;
    this.groups_select.value = kind;
    const {story} = this;
    this.groups = story.groups[kind] ??= new Groups(story, kind);
    this.sums = new Float64Array(this.groups.count);
    this.others.set(this.groups);
    this.tell_legend(this.chosen ?? story.peak);
    this.draw();
  }

  // Gives one of the others its own band.
  add_band(key) {
    const {story, kind, groups} = this;
    if (groups.named < 254) {
      story.groups[kind] = new Groups(story, kind, [...groups.chosen, key]);
      this.regroup(kind);
    }
  }

  set_axis(axis) {
    this.axis = axis;
    this.show_all();
  }

  // The whole width: microseconds or events.
  get whole() {
    const {story} = this;
    return Math.max(1, this.axis === 'time' ? (story.events ? story.time[story.events - 1] : 1) : story.events);
  }

  show_all() {
    this.tall = null;
    this.view = [0, this.whole];
    this.draw();
  }

  zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
    const [begin, end] = this.view;
    const least = this.axis === 'time' ? 10 : 8;
    const span = Math.min(this.whole, Math.max(least, (end - begin) * factor));
    const share = (at - begin) / (end - begin);
    this.look_at(at - share * span, span);
  }

  look_at(begin, span) {
    const first = Math.max(0, Math.min(this.whole - span, begin));
    this.view = [first, first + span];
    this.draw();
  }

  // Shows half of the bytes: those round the chosen block, or round where the live memory changes.
  make_taller() {
    const {story} = this;
    const [low, high] = this.tall ?? [0, this.highest];
    const moments = this.columns();
    const totals = Array.from(moments, moment => story.total[moment]);
    let middle = (totals.reduce((least, total) => Math.min(least, total)) + totals.reduce((most, total) => Math.max(most, total))) / 2;
    if (this.tall || this.block >= 0) {
      middle = this.block >= 0 ? this.middle_of_block() : (low + high) / 2;
    }
    this.look_at_height(middle - (high - low) / 4, (high - low) / 2);
  }

  // Returns the height of the middle of the chosen block, in bytes.
  middle_of_block() {
    const rows = stacked_rows(this, this.chosen);
    return bytes_below(this, rows, rows.indexOf(this.block)) + this.story.bytes[this.block] / 2;
  }

  look_at_height(low, span) {
    const first = Math.max(0, Math.min(this.highest - span, low));
    this.tall = span >= this.highest || span < BYTES_LEAST ? this.tall : [first, first + span];
    this.draw();
  }

  bring_into_height(low, high) {
    if (this.tall && (low < this.tall[0] || high > this.tall[1])) {
      const span = this.tall[1] - this.tall[0];
      this.look_at_height((low + high - span) / 2, span);
    }
  }

  // Up or down by a share of the height.
  climb(share) {
    if (this.tall) {
      const [low, high] = this.tall;
      this.look_at_height(low + share * (high - low), high - low);
    }
  }

  get plot_width() {
    return Math.max(10, this.surface.width - LEFT - 4);
  }

  value_at(x) {
    return this.view[0] + ((x - LEFT) / this.plot_width) * (this.view[1] - this.view[0]);
  }

  x_of(value) {
    return LEFT + ((value - this.view[0]) / (this.view[1] - this.view[0])) * this.plot_width;
  }

  // The last moment that is not right of this value.
  moment_of(value) {
    return this.axis === 'time' ? this.story.moment_at(value) : Math.max(0, Math.min(this.story.events, Math.floor(value)));
  }

  value_of_moment(moment) {
    return this.axis === 'time' ? this.story.time_of(moment) : moment;
  }

  // For each column of pixels the moment that it shows: the highest, or what lasts from before.
  columns() {
    const count = Math.floor(this.plot_width);
    const moments = new Uint32Array(count);
    let before = this.moment_of(this.view[0]);
    for (let column = 0; column < count; column++) {
      const last = this.moment_of(this.value_at(LEFT + column + 1));
      moments[column] = last > before ? this.story.most.within(before + (column > 0 ? 1 : 0), last) : before;
      before = last;
    }
    return moments;
  }

  draw() {
    this.surface.ask(pen => paint_timeline(this, pen));
    this.lane.draw();
  }

  choose_moment(moment) {
    this.chosen = moment;
    this.block = -1;
    this.tell_chosen();
    this.tell_legend(moment);
    this.draw();
    this.choose(moment);
  }

  // The block stays marked until another moment is chosen.
  choose_block(row) {
    this.block = row;
    this.tell_chosen();
    this.draw();
    this.chose_block?.(row);
  }

  tell_chosen() {
    const {story, chosen, block} = this;
    const of_block = block < 0 ? '' : `; block ${story.name_of(block)} of ${bytes_text(story.bytes[block])}`;
    this.chosen_text.textContent = `Chosen: ${time_text(story.time_of(chosen), 1)}, ${bytes_text(story.total[chosen])}${of_block}`;
  }

  hover(row) {
    if (row !== this.hovered) {
      this.hovered = row;
      this.draw();
    }
  }

  tell_legend(moment) {
    const {groups} = this;
    const sums = groups.at(moment);
    this.legend.replaceChildren(
      element('li', {}, element('i', {class: 'dashes'}), element('span', {}, 'reserved'), element('b', {}, bytes_text(this.story.reserved[moment]))),
      ...Array.from(sums.keys()).filter(group => group < groups.named || groups.others > 0).map(group => element('li', {title: groups.names[group]},
        element('i', {class: 'swatch', style: `background: ${groups.color(group)}`}),
        ...band_name(groups, group), element('b', {}, bytes_text(sums[group])))));
  }

  // The block whose part of the band is at this height, if there is one.
  block_at(moment, bytes) {
    const {story, groups} = this;
    const sums = groups.at(moment);
    let below = 0;
    for (let group = 0; group < groups.count; group++) {
      if (bytes < below + sums[group]) {
        let row_found = -1;
        let height = below;
        story.each_alive(moment, row => {
          if (row_found < 0 && groups.of_row(row) === group) {
            height += story.bytes[row];
            row_found = height > bytes ? row : -1;
          }
        });
        return {group, row: row_found, group_bytes: sums[group]};
      }
      below += sums[group];
    }
    return null;
  }
}

// The function first, then its place.
function band_name(groups, group) {
  const [name, place] = groups.parts[group];
  return [element('span', {}, name, place ? element('span', {class: 'soft'}, ` ${place}`) : null)];
}
