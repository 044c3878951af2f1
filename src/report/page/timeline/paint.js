// The picture of the timeline: bands, lines, marks, axes.

function paint_timeline(timeline, pen) {
  const {story, surface} = timeline;
  const bottom = surface.height - BOTTOM;
  const moments = timeline.columns();
  let highest = 1;
  for (const moment of moments) {
    highest = Math.max(highest, story.total[moment], story.reserved[moment]);
  }
  timeline.highest = highest;
  const [low, high] = timeline.tall ?? [0, highest];
  const y_of = bytes => Math.max(TOP, Math.min(bottom, bottom - ((bytes - low) / (high - low)) * (bottom - TOP)));
  timeline.y_at = y_of;
  timeline.bytes_at = y => low + ((bottom - y) / (bottom - TOP)) * (high - low);
  paint_bytes_axis(pen, surface, [low, high], y_of);
  paint_bands(timeline, pen, moments, y_of);
  paint_reserved(timeline, pen, moments, y_of);
  paint_time_axis(timeline, pen, bottom);
  paint_marks(timeline, pen, bottom);
}

function paint_bands(timeline, pen, moments, y_of) {
  const {groups, sums} = timeline;
  const edges = Array.from({length: groups.count + 1}, () => new Float64Array(moments.length));
  for (let column = 0; column < moments.length; column++) {
    const is_new = column === 0 || moments[column] !== moments[column - 1];
    if (is_new) {
      groups.at(moments[column], sums);
    }
    let height = 0;
    edges[0][column] = y_of(0);
    for (let group = 0; group < groups.count; group++) {
      height += sums[group];
      edges[group + 1][column] = y_of(height);
    }
  }
  for (let group = 0; group < groups.count; group++) {
    band_path(pen, edges[group], edges[group + 1]);
    pen.fillStyle = groups.color(group);
    pen.fill();
  }
  // A thin line of the ground between bands: neighbours stay apart whatever one sees of their
  // colours. Along the top of bands only: upright it would cover what is one column wide.
  pen.strokeStyle = css('--card');
  pen.lineWidth = 0.75;
  pen.beginPath();
  for (let group = 1; group < groups.count; group++) {
    for (let column = 0; column < moments.length; column++) {
      if (edges[group - 1][column] - edges[group][column] > 1.5) {
        pen.moveTo(LEFT + column, edges[group][column]);
        pen.lineTo(LEFT + column + 1, edges[group][column]);
      }
    }
  }
  pen.stroke();
  timeline.has_blocks = paint_outlines(timeline, pen, moments, y_of);
  paint_band_names(timeline, pen, edges);
}

function edge_path(pen, edge) {
  pen.beginPath();
  for (let column = 0; column < edge.length; column++) {
    pen.lineTo(LEFT + column, edge[column]);
    pen.lineTo(LEFT + column + 1, edge[column]);
  }
}

function band_path(pen, lower, upper) {
  edge_path(pen, upper);
  for (let column = lower.length - 1; column >= 0; column--) {
    pen.lineTo(LEFT + column + 1, lower[column]);
    pen.lineTo(LEFT + column, lower[column]);
  }
  pen.closePath();
}

// Names stand in the bands that have room for them: where a band is highest over 40 columns.
function paint_band_names(timeline, pen, edges) {
  const {groups} = timeline;
  const steps = Math.floor(edges[0].length / 20);
  for (let group = 0; group < groups.named; group++) {
    let best = {room: 15};
    for (let step = 1; step < steps - 3; step++) {
      const at = [0, 20, 40, 60].map(more => step * 20 + more - 10);
      const top = Math.max(...at.map(column => edges[group + 1][column]));
      const floor = Math.min(...at.map(column => edges[group][column]));
      if (floor - top > best.room) {
        best = {room: floor - top, column: at[0], y: (floor + top) / 2};
      }
    }
    if (best.column !== undefined) {
      let last = best.column;
      while (last < edges[0].length && edges[group + 1][last] < best.y - 7 && edges[group][last] > best.y + 7) {
        last++;
      }
      const text = fitted(pen, groups.names[group], last - best.column - 8);
      pen.fillStyle = readable_on(groups.color(group));
      pen.fillText(text, LEFT + best.column + 4, best.y);
    }
  }
}

function readable_on(color) {
  const [red, green, blue] = [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16));
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? '#15181b' : '#ffffff';
}

function paint_reserved(timeline, pen, moments, y_of) {
  const {story} = timeline;
  const [low, high] = timeline.tall ?? [0, timeline.highest];
  let is_shown = false;
  pen.beginPath();
  for (let column = 0; column < moments.length; column++) {
    const bytes = story.reserved[moments[column]];
    const y = y_of(bytes);
    is_shown ? pen.lineTo(LEFT + column, y) : pen.moveTo(LEFT + column, y);
    is_shown = bytes >= low && bytes <= high;
    is_shown ? pen.lineTo(LEFT + column + 1, y) : pen.moveTo(LEFT + column + 1, y);
  }
  pen.strokeStyle = css('--ink');
  pen.lineWidth = 1.25;
  pen.setLineDash([5, 3]);
  pen.stroke();
  pen.setLineDash([]);
}

// Text with a rim of the ground, readable on whatever is below.
function label(pen, text, x, y, color) {
  pen.strokeStyle = css('--card');
  pen.lineWidth = 3;
  pen.lineJoin = 'round';
  pen.strokeText(text, x, y);
  pen.fillStyle = color;
  pen.fillText(text, x, y);
}

// Steps of 1, 2 or 5 times a power (of two among bytes), so that about `count` fit.
function axis_step(whole, count, base) {
  const rough = whole / count;
  if (base === 2) {
    return 2 ** Math.max(0, Math.ceil(Math.log2(rough)));
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find(factor => power * factor >= rough) ?? 10);
}

function paint_bytes_axis(pen, surface, [low, high], y_of) {
  const step = axis_step(high - low, 6, 2);
  pen.textAlign = 'right';
  pen.lineWidth = 1;
  for (let bytes = Math.ceil(low / step) * step; bytes <= high; bytes += step) {
    const y = Math.round(y_of(bytes)) + 0.5;
    pen.strokeStyle = css('--line');
    pen.beginPath();
    pen.moveTo(LEFT, y);
    pen.lineTo(surface.width - 4, y);
    pen.stroke();
    pen.fillStyle = css('--soft');
    pen.fillText(bytes_text(bytes), LEFT - 6, y);
  }
  pen.textAlign = 'left';
}

function paint_time_axis(timeline, pen, bottom) {
  const [begin, end] = timeline.view;
  const step = Math.max(1, axis_step(end - begin, Math.max(2, timeline.plot_width / 110), 10));
  pen.textAlign = 'center';
  pen.fillStyle = css('--soft');
  for (let value = Math.ceil(begin / step) * step; value <= end; value += step) {
    const x = timeline.x_of(value);
    const text = timeline.axis === 'time' ? time_text(value, step) : count_text(value);
    const half = pen.measureText(text).width / 2;
    if (x - half > LEFT - 20 && x + half < timeline.surface.width) {
      pen.fillText(text, x, bottom + 13);
      pen.fillRect(Math.round(x), bottom, 1, 4);
    }
  }
  pen.textAlign = 'left';
}

function paint_marks(timeline, pen, bottom) {
  const {story, chosen} = timeline;
  const line = (moment, color, text, dash, y) => {
    const x = timeline.x_of(timeline.value_of_moment(moment));
    if (x < LEFT - 1 || x > timeline.surface.width) {
      return;
    }
    upright_line(pen, x, bottom, color, dash);
    const wide = pen.measureText(text).width;
    label(pen, text, Math.max(LEFT + 2, Math.min(x + 4, timeline.surface.width - wide - 4)), y, color);
  };
  paint_ooms(timeline, pen, bottom);
  if (story.events > 0) {
    line(story.peak, css('--ink'), `peak ${bytes_text(story.total[story.peak])}`, [2, 3], 7);
  }
  if (chosen !== null) {
    line(chosen, css('--mark'), 'chosen', [], 21);
  }
}

function upright_line(pen, x, bottom, color, dash) {
  pen.strokeStyle = color;
  pen.lineWidth = 1.25;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(x, TOP - 3);
  pen.lineTo(x, bottom);
  pen.stroke();
  pen.setLineDash([]);
}
