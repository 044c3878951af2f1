// The segments at a moment: one row each, its blocks by call site, state or library, and beside
// them the events. At first that is the end; then the moment that the reader chooses, here or in
// the timeline.

class Segments {
  constructor(section, data, choose) {
    this.data = data;
    this.kind = 'site';
    this.scale = 'fill';
    this.order = 'waste';
    const kind = chooser('Colour by', [['site', 'call site'], ['library', 'library'], ['state', 'state']], value => {
      this.kind = value;
      this.draw();
    });
    const order = chooser('Sorted by', [['waste', 'free bytes inside'], ['size', 'size'], ['address', 'address']], value => {
      this.order = value;
      this.sort();
    });
    const scale = chooser('Width', [['fill', 'all the same'], ['size', 'by size']], value => {
      this.scale = value;
      this.draw();
    });
    [this.kind_select, this.order_select, this.scale_select] = [kind.select, order.select, scale.select];
    this.slider = element('input', {type: 'range', id: 'segments-slider', min: 0, step: 1, 'aria-label': 'Moment', input: () => this.slide(choose)});
    this.when = element('span', {class: 'soft', id: 'segments-when', role: 'status'});
    const to = (name, moment_of) => element('button', {type: 'button', click: () => choose(moment_of(this.story))}, name);
    this.to_failed = to('Next failed allocation', story => next_failed(story, this.moment));
    this.to_failed.id = 'segments-failed';
    this.when_controls = element('div', {class: 'controls'}, this.slider, to('Peak', story => story.peak), this.to_failed,
      to('End', story => story.events), this.when);
    this.text = element('p', {id: 'segments-text'});
    this.spacer = element('div');
    this.box = element('div', {class: 'scroll', id: 'segments-box', tabindex: -1}, this.spacer);
    this.legend = element('ul', {class: 'legend'});
    const list = element('div', {id: 'events'});
    const pictures = element('div', {}, element('div', {class: 'controls'}, kind.label, order.label, scale.label), this.box, this.legend);
    section.append(this.when_controls, this.text, element('div', {id: 'history'}, list, pictures));
    this.events = new Events(list, data, choose);
    pictures.append(this.events.detail);
    this.events.searched = needle => this.mark(parse_address(needle));
    this.marked = null;
    this.surface = new Surface(this.spacer, 100, 'Segments and their blocks');
    this.between = new Between(section, data);
    listen_to_segments(this);
  }

  set(story) {
    this.story = story;
    this.reserved = story.tracks.map(track => new Reserved(this.data, track));
    this.slider.max = story.events;
    this.when_controls.hidden = story.events < 2;
    this.to_failed.hidden = story.ooms.length === 0;
    this.events.set(story);
    this.choose_moment(story.events);
  }

  choose_moment(moment) {
    const {story} = this;
    this.moment = moment;
    this.slider.value = moment;
    this.when.textContent = moment === story.events ? 'at the end' : `${time_text(story.time_of(moment), 1)} after start`;
    this.slider.setAttribute('aria-valuetext', this.when.textContent);
    this.shown = this.reserved.flatMap((reserved, index) => reserved.at(story.moment_of_track(index, moment))
      .map(segment => segment_facts(segment, reserved.track)));
    this.failed = story.ooms.find(oom => oom.event + 1 === moment) ?? null;
    this.text.replaceChildren(...segments_text(this));
    this.between.set(this.shown);
    this.sort();
    this.events.choose_moment(moment);
  }

  // Outlines the search result and scrolls its segment into view.
  mark(asked) {
    this.marked = asked;
    if (asked && this.shown) {
      const at = this.shown.findIndex(segment => asked.address >= segment.address && asked.address < segment.address + segment.bytes);
      if (at >= 0) {
        this.box.scrollTop = Math.max(0, (at - 3) * ROW_HEIGHT);
      }
    }
    if (this.shown) {
      this.draw();
    }
  }

  // Marks the block at an address, by the keyboard, and shows its details.
  mark_block(address) {
    tip.release();
    this.mark({address, version: null, kind: null});
    tell_of_marked(this);
  }

  // However often the slider moves, each picture shows one moment.
  slide(choose) {
    if (!this.sliding) {
      this.sliding = true;
      requestAnimationFrame(() => {
        this.sliding = false;
        choose(Number(this.slider.value));
      });
    }
  }

  sort() {
    const by = {
      waste: (left, right) => right.waste - left.waste || right.bytes - left.bytes,
      size: (left, right) => right.bytes - left.bytes,
      address: (left, right) => left.address - right.address,
    };
    this.shown.sort(by[this.order]);
    this.most_bytes = this.shown.reduce((most, segment) => Math.max(most, segment.bytes), 1);
    this.spacer.style.height = `${this.shown.length * ROW_HEIGHT}px`;
    this.draw();
  }

  // The legend, with the colours of the timeline.
  color_of(blocks, block) {
    const state = blocks.state[block];
    if (state === FREE) {
      return css('--ground');
    }
    if (this.kind === 'state') {
      return palette()[state === PENDING ? 2 : 0];
    }
    const groups = this.story.groups[this.kind] ??= new Groups(this.story, this.kind);
    return groups.color(groups.of_stack(blocks.stack[block]));
  }

  draw() {
    const height = Math.min(456, this.shown.length * ROW_HEIGHT);
    this.surface.height = Math.max(1, height);
    const swatch = (color, text) => element('li', {}, element('i', {class: 'swatch', style: `background: ${color}; outline: 1px solid var(--line)`}), text);
    this.legend.replaceChildren(...(this.kind === 'state'
      ? [swatch(palette()[0], 'allocated'), swatch(palette()[2], 'freed, a stream may still use it')] : [swatch('transparent', 'colours as in the timeline')]),
    swatch(css('--ground'), 'free'), swatch(css('--ink'), 'thick edge: private pool of a graph'));
    this.surface.ask(pen => paint_segments(this, pen));
  }
}

// The sums of a segment's blocks.
function segment_facts(segment, track) {
  const facts = {...segment, track, used: 0, requested: 0, largest_free: 0};
  for (let block = segment.first; block < segment.end; block++) {
    const bytes = segment.blocks.bytes[block];
    if (segment.blocks.state[block] === FREE) {
      facts.largest_free = Math.max(facts.largest_free, bytes);
    } else {
      facts.used += bytes;
      facts.requested += segment.blocks.state[block] === HELD ? segment.blocks.requested[block] : 0;
    }
  }
  facts.waste = facts.used > 0 ? facts.bytes - facts.used : 0;
  return facts;
}

// The moment of the first failed allocation after this one, or of the first of all.
function next_failed(story, moment) {
  const next = story.ooms.find(oom => oom.event + 1 > moment) ?? story.ooms[0];
  return next.event + 1;
}

function segments_text({shown, story, moment, failed}) {
  const at_end = moment === story.events;
  const when = at_end ? 'when the snapshot was taken' : `at ${time_text(story.time_of(moment), 1)}`;
  if (shown.length === 0) {
    return [`No segment was reserved ${when}.`];
  }
  const sum = key => shown.reduce((total, segment) => total + segment[key], 0);
  const [bytes, used, split] = [sum('bytes'), sum('used'), sum('waste')];
  const whole = shown.filter(segment => segment.used === 0);
  const outside = story.total[moment] - sum('requested');
  return [
    `${plural(shown.length, 'segment')}, ${bytes_text(bytes)} reserved ${when}. ${bytes_text(used)} were in blocks of the program. ` +
      `${bytes_text(split)} were free inside partly used segments (fragmentation: they cannot be released to the driver), ` +
      `${bytes_text(bytes - used - split)} in ${plural(whole.length, 'segment')} that ${whole.length === 1 ? 'is' : 'are'} entirely free. `,
    outside > 0 ? `The segment of ${bytes_text(outside)} is unknown. ` : '',
    failed ? element('strong', {class: 'alarm', id: 'segments-too-small'}, failed.why) : '',
    at_end ? '' : element('span', {class: 'soft'}, ' Before the end, only requested sizes are known: blocks are shown with these sizes rounded as PyTorch\'s allocator does.'),
  ];
}
