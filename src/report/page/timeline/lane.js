// The ranges of the program over time: a lane below the timeline, with one row for each level of
// nesting.

const LANE_ROW = 18;

class Lane {
  constructor(timeline, parent) {
    this.timeline = timeline;
    this.box = element('div', {class: 'chart', id: 'lane', hidden: true});
    parent.append(this.box);
    this.surface = new Surface(this.box, LANE_ROW, 'Ranges of the program');
    const {canvas} = this.surface;
    canvas.addEventListener('pointermove', event => this.tell(this.pass_at(...this.surface.point(event)), event));
    canvas.addEventListener('pointerleave', () => tip.hide());
    canvas.addEventListener('click', event => {
      const pass = this.pass_at(...this.surface.point(event));
      if (pass) {
        timeline.choose_moment(pass.end);
        this.tell(pass, event);
        tip.hold();
      }
    });
    canvas.addEventListener('keydown', event => this.key(event));
    canvas.addEventListener('focus', () => this.draw());
    canvas.addEventListener('blur', () => this.draw());
  }

  set(story) {
    this.story = story;
    // Passes without an event are not drawn.
    this.passes = story.passes.filter(pass => pass.end > pass.begin);
    this.reached = null;
    this.colors = new Map();
    this.passes.forEach(({range}) => this.colors.has(range) || this.colors.set(range, this.colors.size));
    this.box.hidden = this.passes.length === 0;
    this.surface.height = LANE_ROW * this.passes.reduce((rows, {depth}) => Math.max(rows, depth + 1), 1);
  }

  draw() {
    if (!this.box.hidden) {
      this.surface.ask(pen => this.paint(pen));
    }
  }

  // Extent of a pass, from its first event to its last.
  edges({begin, end}) {
    const {timeline, story} = this;
    return (timeline.axis === 'time' ? [story.time[begin], story.time[end - 1]] : [begin, end]).map(value => timeline.x_of(value));
  }

  paint(pen) {
    const {timeline, story, surface} = this;
    const right = LEFT + timeline.plot_width;
    const painted = [];
    pen.fillStyle = css('--soft');
    pen.textAlign = 'right';
    pen.fillText('ranges', LEFT - 6, LANE_ROW / 2);
    pen.textAlign = 'left';
    for (const pass of this.passes) {
      let [x, end] = this.edges(pass);
      [x, end] = [Math.max(LEFT, x), Math.min(right, Math.max(end, x + 1))];
      // Only the first of several in one column of pixels is drawn.
      if (x > right || end < LEFT || end <= (painted[pass.depth] ?? 0)) {
        continue;
      }
      painted[pass.depth] = Math.max(end, Math.floor(x) + 1);
      const color = palette()[this.colors.get(pass.range) % palette().length];
      pen.fillStyle = color;
      pen.fillRect(x, pass.depth * LANE_ROW + 1, Math.max(1, end - x - (end - x > 4 ? 1 : 0)), LANE_ROW - 2);
      if (end - x > 24) {
        pen.fillStyle = readable_on(color);
        pen.fillText(fitted(pen, last_name(story.data.strings[pass.range]), end - x - 8), x + 4, (pass.depth + 0.5) * LANE_ROW);
      }
    }
    if (this.reached && document.activeElement === surface.canvas) {
      const [left, end] = this.edges(this.reached);
      pen.strokeStyle = css('--ink');
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, this.reached.depth * LANE_ROW + 2, Math.max(1, end - left - 2), LANE_ROW - 4);
    }
  }

  // The arrows go from pass to pass, Enter chooses the end of one and pins its details.
  key(event) {
    const steps = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1};
    if (event.key in steps && this.passes.length > 0) {
      const now = this.passes.indexOf(this.reached);
      const next = now < 0 ? 0 : Math.max(0, Math.min(this.passes.length - 1, now + steps[event.key]));
      this.reached = this.passes[next];
      tip.release();
      this.tell_reached();
      this.draw();
    } else if (event.key === 'Enter' && this.reached) {
      this.timeline.choose_moment(this.reached.end);
      this.tell_reached();
      tip.hold(this.surface.canvas);
    } else {
      return;
    }
    event.preventDefault();
  }

  tell_reached() {
    const [left] = this.edges(this.reached);
    const box = this.surface.canvas.getBoundingClientRect();
    const x = Math.max(LEFT, Math.min(this.surface.width, left));
    this.tell(this.reached, {clientX: box.left + x, clientY: box.top + (this.reached.depth + 0.5) * LANE_ROW});
  }

  pass_at(x, y) {
    const depth = Math.floor(y / LANE_ROW);
    return this.passes.findLast(pass => {
      const [left, right] = pass.depth === depth ? this.edges(pass) : [Infinity, 0];
      return x >= left - 1 && x <= Math.max(right, left + 1);
    });
  }

  tell(pass, event) {
    if (!pass) {
      tip.hide();
      return;
    }
    const {story} = this;
    const same = this.passes.filter(({range}) => range === pass.range);
    const highest = story.total[story.most.within(pass.begin, pass.end)];
    tip.show(event.clientX, event.clientY,
      element('div', {}, element('strong', {}, story.data.strings[pass.range]), `, ${count_text(same.indexOf(pass) + 1)} of ${count_text(same.length)}`),
      element('div', {}, `at ${time_text(story.time[pass.begin], 1)}, for ${time_text(story.time[pass.end - 1] - story.time[pass.begin])}`),
      element('div', {}, `grew by ${growth_text(pass.grew)}; at most ${bytes_text(highest)} live inside`));
  }
}

function last_name(range) {
  return range.slice(range.lastIndexOf('/') + 1);
}
