// The drawing of the segments, and the details under the mouse.

const ROW_HEIGHT = 20;
const BAR_HEIGHT = 14;

function segment_label_width(view) {
  return view.surface.width < 600 ? 78 : 210;
}

function segment_width(view, segment) {
  const room = view.surface.width - segment_label_width(view) - 2;
  return view.scale === 'fill' ? room : Math.max(2, (room * segment.bytes) / view.most_bytes);
}

function paint_segments(view, pen) {
  const first = Math.floor(view.box.scrollTop / ROW_HEIGHT);
  const shift = -(view.box.scrollTop % ROW_HEIGHT);
  const count = Math.ceil(view.surface.height / ROW_HEIGHT) + 1;
  const label_width = segment_label_width(view);
  view.shown.slice(first, first + count).forEach((segment, row) => {
    const y = shift + row * ROW_HEIGHT;
    pen.fillStyle = css('--soft');
    const size = `${bytes_text(segment.bytes)}, ${share_text(segment.used, segment.bytes)}`;
    pen.fillText(label_width < 100 ? bytes_text(segment.bytes)
      : fitted(pen, `${size} used${segment.is_private ? `, pool ${segment.pool}` : segment.small ? ', small' : ''}`, label_width - 8), 0, y + BAR_HEIGHT / 2 + 1);
    paint_blocks(view, pen, segment, y);
  });
}

function paint_blocks(view, pen, segment, y) {
  const {blocks} = segment;
  const left_edge = segment_label_width(view);
  const scale = segment_width(view, segment) / segment.bytes;
  pen.fillStyle = css('--ground');
  pen.fillRect(left_edge, y, segment.bytes * scale, BAR_HEIGHT);
  let at = 0;
  let drawn = -1;
  for (let block = segment.first; block < segment.end; block++) {
    const [left, right] = [at * scale, (at + blocks.bytes[block]) * scale];
    at += blocks.bytes[block];
    // Blocks narrower than half a pixel are drawn once for each half pixel: thousands cost no more.
    if (blocks.state[block] !== FREE && Math.floor(right * 2) > drawn) {
      drawn = Math.floor(right * 2);
      pen.fillStyle = view.color_of(blocks, block);
      pen.fillRect(left_edge + left, y, Math.max(0.5, right - left - (right - left > 3 ? 0.75 : 0)), BAR_HEIGHT);
    }
  }
  paint_marked(view, pen, segment, y, scale);
  pen.strokeStyle = segment.is_private ? css('--ink') : css('--line');
  pen.lineWidth = segment.is_private ? 2 : 1;
  pen.strokeRect(left_edge + 0.5, y + 0.5, segment.bytes * scale - 1, BAR_HEIGHT - 1);
}

// The block that holds the address that was searched for.
function paint_marked({marked}, pen, segment, y, scale) {
  if (!marked || marked.address < segment.address || marked.address >= segment.address + segment.bytes) {
    return;
  }
  const {block, begin} = block_at(segment, marked.address - segment.address);
  if (block >= 0) {
    const left = segment_label_width({surface: {width: pen.canvas.clientWidth}}) + begin * scale;
    pen.strokeStyle = css('--mark');
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, y - 1, Math.max(3, segment.blocks.bytes[block] * scale) + 2, BAR_HEIGHT + 2);
  }
}

// The arrows go from block to block and from segment to segment, Enter pins the details.
function key_in_segments(view, event) {
  const {marked, shown} = view;
  const now = marked ? shown.findIndex(({address, bytes}) => marked.address >= address && marked.address < address + bytes) : -1;
  const segment = shown[now];
  const found = segment ? block_at(segment, marked.address - segment.address) : null;
  const beside = step => {
    const begin = segment ? segment.address + found.begin : shown[0].address;
    return !segment ? begin : step > 0 ? begin + segment.blocks.bytes[found.block] : begin - 1;
  };
  const within = address => segment && (address < segment.address || address >= segment.address + segment.bytes) ? marked.address : address;
  const row = step => shown[Math.max(0, Math.min(shown.length - 1, now + step))]?.address;
  const to = {ArrowRight: () => within(beside(1)), ArrowLeft: () => within(beside(-1)),
    ArrowDown: () => row(1), ArrowUp: () => row(now < 0 ? 1 : -1)};
  if (event.key in to && shown.length > 0) {
    view.mark_block(to[event.key]());
  } else if (event.key === 'Enter' && segment) {
    view.mark_block(marked.address);
    tip.hold(view.surface.canvas);
  } else {
    return;
  }
  event.preventDefault();
}

// Shows the details of the marked block, where it is drawn.
function tell_of_marked(view) {
  const {marked, shown, surface} = view;
  const at = shown.findIndex(({address, bytes}) => marked.address >= address && marked.address < address + bytes);
  const segment = shown[at];
  const {block, begin} = block_at(segment, marked.address - segment.address);
  const middle = (begin + segment.blocks.bytes[block] / 2) * (segment_width(view, segment) / segment.bytes);
  const place = [segment_label_width(view) + middle, at * ROW_HEIGHT - view.box.scrollTop + BAR_HEIGHT / 2];
  const box = surface.canvas.getBoundingClientRect();
  tell_of_place(view, place, {clientX: box.left + place[0], clientY: box.top + place[1]});
}

// Returns the block at this offset in the segment, and the offset where it begins.
function block_at(segment, bytes) {
  const {blocks} = segment;
  let begin = 0;
  for (let block = segment.first; block < segment.end; block++) {
    if (bytes >= begin && bytes < begin + blocks.bytes[block]) {
      return {block, begin};
    }
    begin += blocks.bytes[block];
  }
  return {block: -1, begin: 0};
}

function listen_to_segments(view) {
  view.box.addEventListener('scroll', () => view.draw());
  view.surface.canvas.addEventListener('pointermove', event => tell_of_segment(view, event));
  view.surface.canvas.addEventListener('pointerleave', () => tip.hide());
  view.surface.canvas.addEventListener('click', event => {
    tell_of_segment(view, event);
    tip.hold();
  });
  view.surface.canvas.addEventListener('keydown', event => key_in_segments(view, event));
}

function tell_of_segment(view, event) {
  tell_of_place(view, view.surface.point(event), event);
}

function tell_of_place(view, [x, y], {clientX, clientY}) {
  const segment = view.shown[Math.floor((y + view.box.scrollTop) / ROW_HEIGHT)];
  if (!segment) {
    tip.hide();
    return;
  }
  const {data, moment} = view;
  const own = view.story.moment_of_track(view.story.tracks.indexOf(segment.track), moment);
  const [name, stack] = segment_origin(segment, own);
  const lines = [];
  const bytes = ((x - segment_label_width(view)) / segment_width(view, segment)) * segment.bytes;
  const {block, begin} = block_at(segment, bytes);
  if (block >= 0 && x >= segment_label_width(view)) {
    lines.push(...block_lines(view, segment, block, begin, own));
  }
  lines.push(element('div', {}, element('strong', {}, `Segment ${name}`)),
    element('div', {}, `0x${segment.address.toString(16)}, ${bytes_text(segment.bytes)}, ${bytes_text(segment.used)} used, largest free block ${bytes_text(segment.largest_free)}; ` +
      `${segment.is_private ? `private pool ${segment.pool}` : segment.small ? 'small pool' : 'large pool'}` +
      `${segment.expandable ? ', expandable' : ''}, stream ${segment.stream}`),
    short_frame_list(data, stack));
  tip.show(clientX, clientY, ...lines);
}

// PyTorch's name for the segment, and the stack of the request that it was reserved for.
function segment_origin({track, address, stack}, moment) {
  const {reserve} = track;
  let count = 0;
  let origin = null;
  for (; count < reserve.event.length && reserve.event[count] < moment; count++) {
    if (reserve.bytes[count] > 0 && address >= reserve.address[count] && address < reserve.address[count] + reserve.bytes[count]) {
      origin = reserve.stack[count];
    }
  }
  return [segment_name(reserve, address, count), origin ?? stack ?? 0];
}

function block_lines(view, segment, block, begin, own_moment) {
  const {data, failed, story} = view;
  const {blocks} = segment;
  const bytes = blocks.bytes[block];
  const address = segment.address + begin;
  const where = `0x${address.toString(16)} (+${bytes_text(begin)}): ${bytes_text(bytes)}`;
  if (blocks.state[block] === FREE) {
    const why = failed && bytes < failed.requested ? `, too small for the request of ${bytes_text(failed.requested)}` : '';
    return [element('div', {}, `Free memory at ${where}${why}`)];
  }
  const state = blocks.state[block] === PENDING ? 'freed, a stream may still use it' : 'held by the program';
  const asked = element('div', {}, `Block at ${where}, ${state}, ${bytes_text(blocks.requested[block])} requested`);
  const row = row_at_address(story, segment.track, address, own_moment);
  if (row < 0) {
    return [asked, short_frame_list(data, blocks.stack[block])];
  }
  return [asked, ...row_lines(story, row)];
}

// The row of the story that is at this address, -1 where none is known.
function row_at_address(story, track, address, own_moment) {
  const {address: all} = track.where();
  let [low, high] = [0, all.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    all[middle] < address ? low = middle + 1 : high = middle;
  }
  if (all[low] !== address) {
    return -1;
  }
  const {row_at} = rows_at(track, own_moment);
  return row_at[low] === 0 ? -1 : story.first_rows[story.tracks.indexOf(track)] + row_at[low] - 1;
}
