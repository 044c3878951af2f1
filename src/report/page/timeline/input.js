// Mouse, touch and keyboard input of the timeline. The wheel scrolls the page; with Ctrl,
// Command or Shift it zooms.

function listen_to_timeline(timeline) {
  const {canvas} = timeline.surface;
  let down = null;
  canvas.addEventListener('wheel', event => {
    const [x] = timeline.surface.point(event);
    // With Shift some systems turn the wheel sideways.
    const turned = event.deltaY || (event.shiftKey ? event.deltaX : 0);
    if (event.ctrlKey || event.metaKey || event.shiftKey) {
      event.preventDefault();
      timeline.zoom(Math.exp(Math.max(-300, Math.min(300, turned)) / 400), timeline.value_at(x));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      timeline.move(event.deltaX / timeline.plot_width);
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
      requestAnimationFrame(() => timeline.hover(tell_of_timeline(timeline)));
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
      timeline.pointer = [...timeline.surface.point(event), event.clientX, event.clientY];
      timeline.choose_block(tell_of_timeline(timeline));
      tip.hold();
    }
    down = null;
    timeline.brush.hidden = true;
  });
  canvas.addEventListener('pointerleave', () => {
    timeline.pointer = null;
    timeline.hover(-1);
    tip.hide();
  });
  canvas.addEventListener('dblclick', () => timeline.show_all());
  canvas.addEventListener('keydown', event => key_in_timeline(timeline, event));
}

const DRAG_LEAST = 4;
const ZOOM_STEP = 0.6;
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
  const keys = {
    '+': () => timeline.zoom(ZOOM_STEP),
    '=': () => timeline.zoom(ZOOM_STEP),
    '-': () => timeline.zoom(1 / ZOOM_STEP),
    '0': () => timeline.show_all(),
    Escape: () => timeline.show_all(),
    ArrowLeft: () => timeline.move(-0.1),
    ArrowRight: () => timeline.move(0.1),
    PageUp: () => timeline.climb(0.5),
    PageDown: () => timeline.climb(-0.5),
    ArrowUp: () => step_to_block(timeline, 1),
    ArrowDown: () => step_to_block(timeline, -1),
    Enter: () => hold_block(timeline) || timeline.choose_moment(timeline.moment_of((timeline.view[0] + timeline.view[1]) / 2)),
  };
  if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    keys[event.key]();
  }
}

// Pins the details of the block that the keyboard has reached. Returns `false` if there is none.
function hold_block(timeline) {
  const is_shown = timeline.block >= 0 && !tip.box.hidden;
  if (is_shown) {
    tip.hold(timeline.surface.canvas);
  }
  return is_shown;
}

// Returns the row of the block under the mouse, or -1.
function tell_of_timeline(timeline) {
  if (!timeline.pointer || !timeline.bytes_at) {
    return -1;
  }
  const [x, y, client_x, client_y] = timeline.pointer;
  if (x < LEFT) {
    tip.hide();
    return -1;
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
      lines.push(...row_lines(story, found.row));
    }
  }
  tip.show(client_x, client_y, ...lines);
  return found?.row ?? -1;
}

// A block with its name and its stacks.
function row_lines(story, row) {
  return [element('div', {}, element('code', {}, story.name_of(row)), ` ${block_life(story, row)}`), short_frame_list(story.data, story.stack[row]),
    ...freed_lines(story, row, short_frame_list)];
}

function block_life(story, row) {
  const begin = story.from[row];
  const came = begin === 0 ? 'from before the recording' : `allocated at ${time_text(story.time_of(begin), 1)}`;
  const until = story.until[row];
  const went = until >= story.events ? 'never freed'
    : `freed ${begin === 0 ? `at ${time_text(story.time_of(until + 1), 1)}` : `${time_text(story.time_of(until + 1) - story.time_of(begin))} later`}`;
  return `A block of ${bytes_text(story.bytes[row])} at 0x${story.address_of(row).toString(16)}, stream ${story.stream_of(row)}, ${came}, ${went}`;
}
