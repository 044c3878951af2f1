// The list of events beside the segments: what the allocator did, one line each. Choosing one shows
// the segments at that moment and the stacks of the event. Only the lines in view are elements, so
// the list may have any length.

const EVENT_HEIGHT = 19;
// Browsers support no taller element; in a longer list each pixel stands for several lines.
const LIST_HEIGHT_MOST = 8e6;

class Events {
  // `choose` is called with a moment.
  constructor(section, data, choose) {
    this.data = data;
    this.choose = choose;
    this.first = 0;
    this.search = element('input', {type: 'search', id: 'events-search', placeholder: 'address, b7f0..._1, function or file',
      'aria-label': 'Search events', input: () => this.filter()});
    this.count = element('span', {class: 'soft', role: 'status', id: 'events-count'});
    this.lines = element('div', {class: 'lines'});
    this.spacer = element('div', {}, this.lines);
    this.box = element('div', {class: 'scroll', id: 'events-box', tabindex: 0, role: 'listbox', 'aria-label': 'Events'}, this.spacer);
    this.detail = element('div', {id: 'events-detail', 'aria-live': 'polite'});
    section.append(element('div', {class: 'controls'}, this.search, this.count), this.box);
    this.box.addEventListener('scroll', () => this.scrolled());
    this.box.addEventListener('wheel', event => this.wheel(event), {passive: false});
    this.box.addEventListener('keydown', event => this.key(event));
    this.lines.addEventListener('click', event => {
      const line = event.target.closest('[data-event]');
      if (line) {
        this.choose(Number(line.dataset.event) + 1);
      }
    });
  }

  set(story) {
    this.story = story;
    this.chosen = -1;
    this.found = null;
    this.filter();
  }

  get length() {
    return this.found ? this.found.length : this.story.events;
  }

  get seen() {
    return Math.max(1, Math.floor(this.box.clientHeight / EVENT_HEIGHT));
  }

  // Pixels of the list for each pixel of scrolling.
  get factor() {
    return Math.max(1, (this.length * EVENT_HEIGHT) / LIST_HEIGHT_MOST);
  }

  event_of(line) {
    return this.found ? this.found[line] : line;
  }

  // The line of an event, or of the last one before it.
  line_of(event) {
    const {found} = this;
    if (!found) {
      return event;
    }
    let [low, high] = [0, found.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      found[middle] <= event ? low = middle + 1 : high = middle;
    }
    return low - 1;
  }

  filter() {
    const needle = this.search.value.trim();
    this.found = needle === '' ? null : find_events(this.story, needle);
    this.spacer.style.height = `${Math.min(LIST_HEIGHT_MOST, this.length * EVENT_HEIGHT)}px`;
    this.count.textContent = this.found ? `${count_text(this.length)} of ${plural(this.story.events, 'event')}` : plural(this.story.events, 'event');
    this.show_line(this.line_of(Math.max(0, this.chosen)));
    this.searched?.(needle);
  }

  // Shows the moment after this many events; the last of them is the chosen one.
  choose_moment(moment) {
    this.chosen = moment - 1;
    const line = this.line_of(this.chosen);
    if (line < this.first || line >= this.first + this.seen - 1) {
      this.show_line(line - Math.floor(this.seen / 2));
    }
    this.draw();
    this.detail.replaceChildren(...moment === 0 ? [] : event_lines(this.story, moment - 1));
  }

  show_line(line) {
    this.first = Math.max(0, Math.min(this.length - this.seen, line));
    this.moved = true;
    this.box.scrollTop = (this.first * EVENT_HEIGHT) / this.factor;
    this.draw();
  }

  scrolled() {
    if (!this.moved) {
      this.first = Math.max(0, Math.min(this.length - this.seen, Math.floor((this.box.scrollTop * this.factor) / EVENT_HEIGHT)));
    }
    this.moved = false;
    this.draw();
  }

  // Where a pixel is several lines, the wheel still goes line by line.
  wheel(event) {
    if (this.factor > 1 && !event.ctrlKey) {
      event.preventDefault();
      this.show_line(this.first + Math.sign(event.deltaY) * Math.max(1, Math.round(Math.abs(event.deltaY) / EVENT_HEIGHT)));
    }
  }

  key(event) {
    const now = this.line_of(this.chosen);
    const steps = {ArrowUp: -1, ArrowDown: 1, PageUp: -this.seen, PageDown: this.seen, Home: -Infinity, End: Infinity};
    if (event.key in steps && this.length > 0) {
      event.preventDefault();
      this.choose(this.event_of(Math.max(0, Math.min(this.length - 1, now + steps[event.key]))) + 1);
    }
  }

  draw() {
    if (!this.story || this.waiting) {
      return;
    }
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const count = Math.min(this.seen + 1, this.length - this.first);
      this.lines.style.top = '0px';
      this.lines.replaceChildren(...Array.from({length: Math.max(0, count)}, (_, at) => this.line(this.event_of(this.first + at))));
      this.box.setAttribute('aria-activedescendant', `event-${this.chosen}`);
    });
  }

  line(event) {
    const told = event_of(this.story, event);
    const is_chosen = event === this.chosen;
    return element('div', {class: 'event', role: 'option', id: `event-${event}`, 'aria-selected': String(is_chosen), 'data-event': event, 'data-action': told.action},
      element('span', {class: 'action'}, told.action), element('code', {}, told.name), element('b', {}, bytes_text(told.bytes)));
  }
}

// Returns what an event did: {action, name, bytes, row, stack, reserve}.
function event_of(story, event) {
  const row = story.row_of_event[event];
  if (row !== 0) {
    const index = Math.abs(row) - 1;
    return {action: row > 0 ? 'alloc' : 'free', name: story.name_of(index), bytes: story.bytes[index], row: index,
      stack: row > 0 ? story.stack[index] : story.freed_by(index)};
  }
  const oom = story.oom_of_event.get(event);
  if (oom) {
    return {action: 'oom', name: '', bytes: oom.requested, row: -1, stack: oom.stack};
  }
  const [index, number] = story.reserve_of_event.get(event) ?? [0, -1];
  if (number < 0) {
    return {action: 'other', name: '', bytes: 0, row: -1, stack: 0};
  }
  const {reserve} = story.tracks[index];
  const came = reserve.bytes[number] > 0;
  const action = `segment ${reserve.part[number] === 1 ? (came ? 'map' : 'unmap') : (came ? 'alloc' : 'free')}`;
  return {action, name: segment_name(reserve, reserve.address[number], number), bytes: Math.abs(reserve.bytes[number]), row: -1,
    stack: reserve.stack[number]};
}

// Version of a segment, as PyTorch's viewer names it: how often its address was released among the
// first `reserves`.
function segment_name(reserve, address, reserves) {
  let version = 0;
  for (let i = 0; i < reserves; i++) {
    version += reserve.address[i] === address && reserve.bytes[i] < 0 ? 1 : 0;
  }
  return `s${address.toString(16)}_${version}`;
}

function event_lines(story, event) {
  const told = event_of(story, event);
  const {data} = story;
  const at = time_text(story.time[event], 1);
  const lines = [element('div', {}, element('strong', {}, `${told.action} ${told.name}`), ` ${bytes_text(told.bytes)}, at ${at}, event ${count_text(event + 1)}`)];
  const stack = (title, number) => lines.push(element('h3', {}, title), frame_list(data, number));
  if (told.row < 0) {
    stack('Called by', told.stack);
    return lines;
  }
  lines.push(element('div', {}, block_life(story, told.row)));
  stack('Allocated by', story.stack[told.row]);
  lines.push(...freed_lines(story, told.row, frame_list));
  return lines;
}

// Stack of the free of a block. PyTorch's files contain only the stack of the allocation, unless
// more was requested.
function freed_lines(story, row, list) {
  const freed_by = story.freed_by(row);
  if (freed_by === null) {
    return [];
  }
  const is_known = story.data.stacks.node[freed_by] !== 0 && story.data.stacks.node[freed_by] !== story.data.stacks.node[story.stack[row]];
  return [element('h3', {}, 'Freed by'), is_known ? list(story.data, freed_by) : element('p', {class: 'soft'}, 'The file has no stack of the free.')];
}

// The events of an address, of a name, or whose stacks have such a function or file.
function find_events(story, needle) {
  const test = event_test(story, needle);
  const found = [];
  for (let event = 0; event < story.events; event++) {
    if (test(event)) {
      found.push(event);
    }
  }
  return Uint32Array.from(found);
}

function event_test(story, needle) {
  const {data} = story;
  const asked = parse_address(needle);
  const of_reserve = (event, test) => {
    const reserve = story.reserve_of_event.get(event);
    return reserve !== undefined && test(story.tracks[reserve[0]].reserve, reserve[1]);
  };
  if (asked) {
    const {address, version, kind} = asked;
    return event => {
      const row = Math.abs(story.row_of_event[event]) - 1;
      if (row < 0) {
        return kind !== 'b' && of_reserve(event, (reserve, i) => address >= reserve.address[i] && address < reserve.address[i] + Math.abs(reserve.bytes[i])
          && (version === null || segment_name(reserve, reserve.address[i], i) === needle));
      }
      if (kind === 's') {
        return false;
      }
      const begin = story.address_of(row);
      return version === null ? address >= begin && address < begin + Math.max(1, story.bytes[row]) : begin === address && story.name_of(row) === needle;
    };
  }
  const text = needle.toLowerCase();
  const fits = Uint8Array.from(data.stacks.site, site => Number(data.site_parts(site).some(part => part.toLowerCase().includes(text))));
  return event => {
    const row = Math.abs(story.row_of_event[event]) - 1;
    if (row >= 0) {
      return fits[story.stack[row]] === 1;
    }
    return of_reserve(event, (reserve, i) => fits[reserve.stack[i]] === 1) || fits[story.oom_of_event.get(event)?.stack] === 1;
  };
}

// "0x7f0640012340", "7f0640012340", or PyTorch's name for a block or a segment: {address, version,
// kind}.
function parse_address(text) {
  const name = /^([bs])([0-9a-f]{1,13})_([0-9]{1,9})$/i.exec(text);
  if (name) {
    return {kind: name[1].toLowerCase(), address: parseInt(name[2], 16), version: Number(name[3])};
  }
  const address = /^(?:0x([0-9a-f]{1,13})|([0-9a-f]{6,13}))$/i.exec(text);
  return address ? {kind: null, address: parseInt(address[1] ?? address[2], 16), version: null} : null;
}
