// What mouse, finger and keyboard do in the timeline.

function listen_to_timeline(timeline) {
  const {canvas} = timeline.surface;
  let down = null;
  canvas.addEventListener('wheel', event => {
    const [x] = timeline.surface.point(event);
    const all = timeline.view[0] <= 0 && timeline.view[1] >= timeline.whole;
    if (all && event.deltaY > 0) {
      return; // nothing left to zoom out of: the page scrolls
    }
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const span = timeline.view[1] - timeline.view[0];
      timeline.look_at(timeline.view[0] + (event.deltaX / timeline.plot_width) * span, span);
    } else {
      timeline.zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) / 400), timeline.value_at(x));
    }
  }, {passive: false});
  canvas.addEventListener('pointerdown', event => {
    if (event.button === 0) {
      down = timeline.surface.point(event)[0];
      canvas.setPointerCapture(event.pointerId);
    }
  });
  canvas.addEventListener('pointermove', event => {
    const [x, y] = timeline.surface.point(event);
    if (down !== null && Math.abs(x - down) > DRAG_LEAST) {
      tip.hide();
      const [left, right] = [Math.min(down, x), Math.max(down, x)];
      timeline.brush.hidden = false;
      timeline.brush.style.cssText = `left: ${Math.max(LEFT, left)}px; width: ${right - Math.max(LEFT, left)}px; top: ${TOP}px; bottom: ${BOTTOM}px`;
    } else {
      timeline.pointer = [x, y, event.clientX, event.clientY];
      requestAnimationFrame(() => tell_of_timeline(timeline));
    }
  });
  canvas.addEventListener('pointerup', event => {
    const [x] = timeline.surface.point(event);
    if (down !== null && Math.abs(x - down) > DRAG_LEAST) {
      const [begin, end] = [Math.min(down, x), Math.max(down, x)].map(at => timeline.value_at(Math.max(LEFT, at)));
      timeline.zoom((end - begin) / (timeline.view[1] - timeline.view[0]), begin);
      timeline.look_at(begin, timeline.view[1] - timeline.view[0]);
    } else if (down !== null && x >= LEFT) {
      const failed = failed_at(timeline, x);
      timeline.choose_moment(failed ? failed.oom.event + 1 : shown_at(timeline, x));
    }
    down = null;
    timeline.brush.hidden = true;
  });
  canvas.addEventListener('pointerleave', () => {
    timeline.pointer = null;
    tip.hide();
  });
  canvas.addEventListener('dblclick', () => timeline.show_all());
  canvas.addEventListener('keydown', event => key_in_timeline(timeline, event));
}

const DRAG_LEAST = 4;
const OOM_NEAR = 3;

// The moment that the column of pixels under the mouse shows.
function shown_at(timeline, x) {
  const column = Math.floor(x - LEFT);
  const first = timeline.moment_of(timeline.value_at(LEFT + column));
  const last = timeline.moment_of(timeline.value_at(LEFT + column + 1));
  return last > first ? timeline.story.most.within(first + 1, last) : first;
}

// The mark of a failed allocation under the mouse.
function failed_at(timeline, x) {
  return oom_marks(timeline).find(mark => Math.abs(mark.x + 0.5 - x) < OOM_NEAR);
}

function key_in_timeline(timeline, event) {
  const span = timeline.view[1] - timeline.view[0];
  const keys = {
    '+': () => timeline.zoom(0.6),
    '=': () => timeline.zoom(0.6),
    '-': () => timeline.zoom(1 / 0.6),
    '0': () => timeline.show_all(),
    Escape: () => timeline.show_all(),
    ArrowLeft: () => timeline.look_at(timeline.view[0] - span / 10, span),
    ArrowRight: () => timeline.look_at(timeline.view[0] + span / 10, span),
    Enter: () => timeline.choose_moment(timeline.moment_of((timeline.view[0] + timeline.view[1]) / 2)),
  };
  if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    keys[event.key]();
  }
}

function tell_of_timeline(timeline) {
  if (!timeline.pointer || !timeline.bytes_at) {
    return;
  }
  const [x, y, client_x, client_y] = timeline.pointer;
  if (x < LEFT) {
    tip.hide();
    return;
  }
  const {story, groups} = timeline;
  const moment = shown_at(timeline, x);
  const lines = [
    element('div', {}, element('strong', {}, time_text(story.time_of(moment), 1)),
      `  live ${bytes_text(story.total[moment])}, reserved ${bytes_text(story.reserved[moment])}`),
  ];
  const failed = failed_at(timeline, x);
  if (failed) {
    const [first, moment] = [bytes_text(failed.oom.requested), failed.oom.event + 1];
    lines.push(element('div', {class: 'alarm'}, failed.count === 1 ? `an allocation of ${first} failed` : `${plural(failed.count, 'allocation')} failed, the first of ${first}`,
      ` at ${time_text(story.time_of(moment), 1)}`));
  }
  const found = timeline.block_at(moment, Math.max(0, timeline.bytes_at(y)));
  if (found) {
    lines.push(element('div', {}, element('i', {class: 'swatch', style: `background: ${groups.color(found.group)}`}),
      ` ${groups.names[found.group]}: ${bytes_text(found.group_bytes)}`));
    if (found.row >= 0) {
      lines.push(element('div', {}, block_life(story, found.row)), short_frame_list(story.data, story.stack[found.row]));
    }
  }
  tip.show(client_x, client_y, ...lines);
}

function block_life(story, row) {
  const begin = story.from[row];
  const came = begin === 0 ? 'from before the recording' : `allocated at ${time_text(story.time_of(begin), 1)}`;
  const until = story.until[row];
  const went = until >= story.events ? 'never freed'
    : `freed ${begin === 0 ? `at ${time_text(story.time_of(until + 1), 1)}` : `${time_text(story.time_of(until + 1) - story.time_of(begin))} later`}`;
  return `A block of ${bytes_text(story.bytes[row])}, ${came}, ${went}`;
}
