// The picture of the segments, and what the mouse says in it.

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
  pen.strokeStyle = segment.is_private ? css('--ink') : css('--line');
  pen.lineWidth = segment.is_private ? 2 : 1;
  pen.strokeRect(left_edge + 0.5, y + 0.5, segment.bytes * scale - 1, BAR_HEIGHT - 1);
}

function listen_to_segments(view) {
  view.box.addEventListener('scroll', () => view.draw());
  view.surface.canvas.addEventListener('pointermove', event => tell_of_segment(view, event));
  view.surface.canvas.addEventListener('pointerleave', () => tip.hide());
}

function tell_of_segment(view, event) {
  const [x, y] = view.surface.point(event);
  const segment = view.shown[Math.floor((y + view.box.scrollTop) / ROW_HEIGHT)];
  if (!segment) {
    tip.hide();
    return;
  }
  const lines = [element('div', {}, element('strong', {}, `Segment 0x${segment.address.toString(16)}`)),
    element('div', {}, `${bytes_text(segment.bytes)}, ${bytes_text(segment.used)} used, largest free block ${bytes_text(segment.largest_free)}; ` +
      `${segment.is_private ? `private pool ${segment.pool}` : segment.small ? 'small pool' : 'large pool'}` +
      `${segment.expandable ? ', expandable' : ''}, stream ${segment.stream}`)];
  const {blocks} = segment;
  const bytes = ((x - segment_label_width(view)) / segment_width(view, segment)) * segment.bytes;
  let at = 0;
  for (let block = segment.first; block < segment.end; block++) {
    if (bytes >= at && bytes < at + blocks.bytes[block]) {
      lines.push(...block_lines(view, blocks, block, at));
    }
    at += blocks.bytes[block];
  }
  tip.show(event.clientX, event.clientY, ...lines);
}

function block_lines({data, failed}, blocks, block, at) {
  const bytes = blocks.bytes[block];
  const begin = `Block at +${bytes_text(at)}: ${bytes_text(bytes)}`;
  if (blocks.state[block] === FREE) {
    const why = failed && bytes < failed.requested ? `, too small for the ${bytes_text(failed.requested)} asked for` : '';
    return [element('div', {}, `${begin}, free${why}`)];
  }
  const state = blocks.state[block] === PENDING ? 'freed, a stream may still use it' : 'held by the program';
  return [element('div', {}, `${begin}, ${state}, ${bytes_text(blocks.requested[block])} asked for`), short_frame_list(data, blocks.stack[block])];
}
