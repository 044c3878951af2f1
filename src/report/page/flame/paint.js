// The picture of the flame graph, and what mouse and keyboard do in it.

function paint_flame(flame, pen) {
  const {story, boxes} = flame;
  const {data} = story;
  const [ink, soft, mark] = [css('--ink'), css('--soft'), css('--mark')];
  if (boxes.length === 0) {
    pen.fillStyle = soft;
    pen.fillText('Nothing to show: there are no such blocks.', 4, 10);
  }
  const depth_of_top = boxes.find(box => box[0] === flame.top)?.[1] ?? 0;
  for (const [node, depth, left, width] of boxes) {
    const y = depth * FRAME_HEIGHT;
    const is_frame = node !== ROOT && node !== flame.no_stack;
    const found = flame.needle !== '' && flame.matches(node);
    pen.globalAlpha = depth < depth_of_top ? 0.55 : flame.needle !== '' && !found ? 0.4 : 1;
    pen.fillStyle = is_frame ? frame_color(data, flame.tree.frame[node - 1]) : other_color();
    pen.fillRect(left, y, Math.max(0.4, width - 0.6), FRAME_HEIGHT - 1);
    pen.globalAlpha = 1;
    if (found) {
      pen.strokeStyle = mark;
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, y + 1, Math.max(0.4, width - 2.6), FRAME_HEIGHT - 3);
    }
    if (width > 24) {
      pen.fillStyle = ink;
      const frame = is_frame ? data.frame_place(flame.tree.frame[node - 1]) : '';
      const name = node === ROOT ? `${flame.what_select.selectedOptions[0].text}: ${flame.amount(ROOT)}` : flame.name(node);
      pen.fillText(fitted(pen, frame && width > 140 ? `${name}  ${frame}` : name, width - 8), left + 4, y + FRAME_HEIGHT / 2);
    }
    if (node === flame.focus && document.activeElement === flame.surface.canvas) {
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, y + 1, Math.max(1, width - 2.6), FRAME_HEIGHT - 3);
    }
  }
}

function flame_text(flame, node) {
  const {data} = flame.story;
  const whole = `${flame.amount(node)}, ${share_text(flame.sums[node], flame.sums[ROOT])} of all`;
  if (node === ROOT || node === flame.no_stack) {
    return [flame.name(node), whole, ''];
  }
  const frame = flame.tree.frame[node - 1];
  const file = data.strings[data.frames.file[frame]];
  return [data.frame_name(frame), whole, `${data.frame_place(frame)}   ${file}`];
}

function listen_to_flame(flame) {
  const {canvas} = flame.surface;
  const tell = (event, node) => {
    const [name, amount, place] = flame_text(flame, node);
    tip.show(event.clientX, event.clientY, element('strong', {}, name), element('div', {}, amount), element('div', {class: 'soft'}, place));
  };
  canvas.addEventListener('pointermove', event => {
    const box = flame.box_at(flame.surface.point(event));
    box ? tell(event, box[0]) : tip.hide();
    canvas.style.cursor = box ? 'pointer' : 'default';
  });
  canvas.addEventListener('pointerleave', () => tip.hide());
  canvas.addEventListener('click', event => {
    const box = flame.box_at(flame.surface.point(event));
    if (box) {
      flame.zoom(box[0]);
      tell_path(flame);
    }
  });
  canvas.addEventListener('focus', () => flame.draw());
  canvas.addEventListener('blur', () => flame.draw());
  canvas.addEventListener('keydown', event => key_in_flame(flame, event));
}

function key_in_flame(flame, event) {
  const siblings = flame.children.get(flame.parent(flame.focus)) ?? [];
  const beside = step => siblings[siblings.indexOf(flame.focus) + step];
  const go = node => {
    if (node !== undefined) {
      flame.focus = node;
      flame.draw();
      tell_path(flame);
    }
  };
  const keys = {
    ArrowDown: () => go(flame.children.get(flame.focus)?.[0]),
    ArrowUp: () => go(flame.parent(flame.focus)),
    ArrowLeft: () => go(beside(-1)),
    ArrowRight: () => go(beside(1)),
    Enter: () => flame.zoom(flame.focus),
    Escape: () => flame.zoom(ROOT),
  };
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
}

// In words, for screen readers and for copying.
function tell_path(flame) {
  const [name, amount, place] = flame_text(flame, flame.focus);
  flame.path.textContent = flame.focus === ROOT ? '' : `${name}: ${amount}. ${place}`;
}
