// The segments as they were at the end: one row each, its blocks by call site, state or library.

const ROW_HEIGHT = 20;
const BAR_HEIGHT = 14;
const FREE = 0;
const PENDING = 2;

class Segments {
  constructor(section, data) {
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
    this.text = element('p', {id: 'segments-text'});
    this.spacer = element('div');
    this.box = element('div', {class: 'scroll', id: 'segments-box', tabindex: -1}, this.spacer);
    this.legend = element('ul', {class: 'legend'});
    section.append(this.text, element('div', {class: 'controls'}, kind.label, order.label, scale.label), this.box, this.legend);
    this.surface = new Surface(this.spacer, 100, 'Segments and their blocks');
    this.box.addEventListener('scroll', () => this.draw());
    this.surface.canvas.addEventListener('pointermove', event => this.tell(event));
    this.surface.canvas.addEventListener('pointerleave', () => tip.hide());
    // Where the blocks of each segment begin in their columns.
    this.first_block = new Uint32Array(data.segments.blocks.length + 1);
    data.segments.blocks.forEach((count, segment) => { this.first_block[segment + 1] = this.first_block[segment] + count; });
  }

  set(story) {
    this.story = story;
    const {data} = this;
    const is_shown = segment => story.tracks.includes(data.tracks[data.segments.track[segment]]);
    this.shown = Array.from(data.segments.bytes.keys()).filter(is_shown).map(segment => this.facts(segment));
    const sum = key => this.shown.reduce((total, facts) => total + facts[key], 0);
    const [bytes, used] = [sum('bytes'), sum('used')];
    const whole = this.shown.filter(facts => facts.used === 0);
    const split = bytes - used - whole.reduce((total, facts) => total + facts.bytes, 0);
    this.text.textContent = this.shown.length === 0 ? 'No segment was reserved when the snapshot was taken.'
      : `${plural(this.shown.length, 'segment')}, ${bytes_text(bytes)} reserved when the snapshot was taken. ${bytes_text(used)} were in blocks of the program. ` +
        `${bytes_text(split)} were free inside segments that are partly used (fragmentation: the driver cannot have them back), ` +
        `${bytes_text(bytes - used - split)} in ${plural(whole.length, 'segment')} that are wholly free.`;
    this.sort();
  }

  facts(segment) {
    const {data} = this;
    let used = 0;
    let largest_free = 0;
    for (let block = this.first_block[segment]; block < this.first_block[segment + 1]; block++) {
      if (data.blocks.state[block] === FREE) {
        largest_free = Math.max(largest_free, data.blocks.bytes[block]);
      } else {
        used += data.blocks.bytes[block];
      }
    }
    const bytes = data.segments.bytes[segment];
    const pool = data.strings[data.segments.pool[segment]];
    return {segment, bytes, used, largest_free, waste: used > 0 ? bytes - used : 0, pool, is_private: data.segments.private[segment] === 1};
  }

  sort() {
    const {segments} = this.data;
    const by = {
      waste: (left, right) => right.waste - left.waste || right.bytes - left.bytes,
      size: (left, right) => right.bytes - left.bytes,
      address: (left, right) => segments.address[left.segment] - segments.address[right.segment],
    };
    this.shown.sort(by[this.order]);
    this.most_bytes = this.shown.reduce((most, facts) => Math.max(most, facts.bytes), 1);
    this.spacer.style.height = `${this.shown.length * ROW_HEIGHT}px`;
    this.draw();
  }

  // By the same colours as the timeline.
  color_of(block) {
    const {data} = this;
    const state = data.blocks.state[block];
    if (state === FREE) {
      return css('--ground');
    }
    if (this.kind === 'state') {
      return palette()[state === PENDING ? 2 : 0];
    }
    const groups = this.story.groups[this.kind] ??= new Groups(this.story, this.kind);
    return groups.color(groups.of_stack[data.blocks.stack[block]]);
  }

  get label_width() {
    return this.surface.width < 600 ? 78 : 210;
  }

  draw() {
    const height = Math.min(456, this.shown.length * ROW_HEIGHT);
    this.surface.height = Math.max(1, height);
    const swatch = (color, text) => element('li', {}, element('i', {class: 'swatch', style: `background: ${color}; outline: 1px solid var(--line)`}), text);
    this.legend.replaceChildren(...(this.kind === 'state'
      ? [swatch(palette()[0], 'allocated'), swatch(palette()[2], 'freed, a stream may still use it')] : [swatch('transparent', 'colours as in the timeline')]),
    swatch(css('--ground'), 'free'), swatch(css('--ink'), 'thick edge: private pool of a graph'));
    this.surface.ask(pen => this.paint(pen));
  }

  width_of(facts) {
    const room = this.surface.width - this.label_width - 2;
    return this.scale === 'fill' ? room : Math.max(2, (room * facts.bytes) / this.most_bytes);
  }

  paint(pen) {
    const first = Math.floor(this.box.scrollTop / ROW_HEIGHT);
    const shift = -(this.box.scrollTop % ROW_HEIGHT);
    const count = Math.ceil(this.surface.height / ROW_HEIGHT) + 1;
    const {data} = this;
    this.shown.slice(first, first + count).forEach((facts, row) => {
      const y = shift + row * ROW_HEIGHT;
      pen.fillStyle = css('--soft');
      const size = `${bytes_text(facts.bytes)}, ${share_text(facts.used, facts.bytes)}`;
      pen.fillText(this.label_width < 100 ? fitted(pen, size, 74)
        : fitted(pen, `${size} used${facts.is_private ? `, pool ${facts.pool}` : data.segments.small[facts.segment] ? ', small' : ''}`, this.label_width - 8), 0, y + BAR_HEIGHT / 2 + 1);
      this.paint_blocks(pen, facts, y);
    });
  }

  paint_blocks(pen, facts, y) {
    const {data, label_width} = this;
    const scale = this.width_of(facts) / facts.bytes;
    pen.fillStyle = css('--ground');
    pen.fillRect(label_width, y, facts.bytes * scale, BAR_HEIGHT);
    let at = 0;
    let drawn = -1;
    for (let block = this.first_block[facts.segment]; block < this.first_block[facts.segment + 1]; block++) {
      const [left, right] = [at * scale, (at + data.blocks.bytes[block]) * scale];
      at += data.blocks.bytes[block];
      // Blocks narrower than half a pixel are drawn once for each half pixel: thousands cost no more.
      if (data.blocks.state[block] !== FREE && Math.floor(right * 2) > drawn) {
        drawn = Math.floor(right * 2);
        pen.fillStyle = this.color_of(block);
        pen.fillRect(label_width + left, y, Math.max(0.5, right - left - (right - left > 3 ? 0.75 : 0)), BAR_HEIGHT);
      }
    }
    pen.strokeStyle = facts.is_private ? css('--ink') : css('--line');
    pen.lineWidth = facts.is_private ? 2 : 1;
    pen.strokeRect(label_width + 0.5, y + 0.5, facts.bytes * scale - 1, BAR_HEIGHT - 1);
  }

  tell(event) {
    const {data, label_width} = this;
    const [x, y] = this.surface.point(event);
    const facts = this.shown[Math.floor((y + this.box.scrollTop) / ROW_HEIGHT)];
    if (!facts) {
      tip.hide();
      return;
    }
    const {segments, blocks} = data;
    const lines = [element('div', {}, element('strong', {}, `Segment 0x${segments.address[facts.segment].toString(16)}`)),
      element('div', {}, `${bytes_text(facts.bytes)}, ${bytes_text(facts.used)} used, largest free block ${bytes_text(facts.largest_free)}; ` +
        `${facts.is_private ? `private pool ${facts.pool}` : segments.small[facts.segment] ? 'small pool' : 'large pool'}` +
        `${segments.expandable[facts.segment] ? ', expandable' : ''}, stream ${segments.stream[facts.segment]}`)];
    const bytes = ((x - label_width) / this.width_of(facts)) * facts.bytes;
    let at = 0;
    for (let block = this.first_block[facts.segment]; block < this.first_block[facts.segment + 1]; block++) {
      if (bytes >= at && bytes < at + blocks.bytes[block]) {
        const state = ['free', 'held by the program', 'freed, a stream may still use it'][blocks.state[block]];
        lines.push(element('div', {}, `Block at +${bytes_text(at)}: ${bytes_text(blocks.bytes[block])}, ${state}` +
          `${blocks.state[block] === FREE ? '' : `, ${bytes_text(blocks.requested[block])} asked for`}`));
        if (blocks.state[block] !== FREE) {
          lines.push(short_frame_list(data, blocks.stack[block]));
        }
      }
      at += blocks.bytes[block];
    }
    tip.show(event.clientX, event.clientY, ...lines);
  }
}
