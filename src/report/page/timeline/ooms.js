// Marks of failed allocations in the timeline: all of them, however many, and labels that stay
// apart.

// One for each column of pixels in which allocations failed: where, how many, and the first.
function oom_marks(timeline) {
  const {story, view} = timeline;
  const {ooms} = story;
  const marks = [];
  for (let at = first_oom(timeline, view[0]); at < ooms.length; at++) {
    const value = timeline.value_of_moment(ooms[at].event + 1);
    if (value > view[1]) {
      break;
    }
    const x = Math.floor(timeline.x_of(value));
    const last = marks[marks.length - 1];
    if (last?.x === x) {
      last.count++;
    } else {
      marks.push({x, count: 1, oom: ooms[at]});
    }
  }
  return marks;
}

// The index of the first that is not left of this value.
function first_oom({story, axis}, value) {
  const {ooms} = story;
  let [low, high] = [0, ooms.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const moment = ooms[middle].event + 1;
    if ((axis === 'time' ? story.time_of(moment) : moment) < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Texts for the marks, each with its place. A mark whose text would touch the one before is counted
// there.
function oom_labels(pen, marks, width) {
  const labels = [];
  const place = (label) => {
    label.text = label.count === 1 ? `out of memory: ${bytes_text(label.oom.requested)}` : `${count_text(label.count)} times out of memory`;
    label.wide = pen.measureText(label.text).width;
    label.left = Math.max(LEFT + 2, Math.min(label.x + 4, width - label.wide - 4));
    return label;
  };
  for (const mark of marks) {
    let label = place({...mark});
    while (labels.length > 0 && label.left < labels[labels.length - 1].left + labels[labels.length - 1].wide + LABELS_APART) {
      const before = labels.pop();
      label = place({...before, count: before.count + label.count});
    }
    labels.push(label);
  }
  return labels;
}

const LABELS_APART = 14;
// If more than one column in this many has a mark, lines through the bands would hide them.
const LINES_LEAST_APART = 12;

function paint_ooms(timeline, pen, bottom) {
  const marks = oom_marks(timeline);
  const alarm = css('--alarm');
  const crowded = marks.length > timeline.plot_width / LINES_LEAST_APART;
  for (const {x} of marks) {
    pen.globalAlpha = crowded ? 0.15 : 1;
    upright_line(pen, x + 0.5, bottom, alarm, []);
    pen.globalAlpha = 1;
    pen.fillStyle = alarm;
    pen.fillRect(x, TOP - 3, 1, 7);
  }
  oom_labels(pen, marks, timeline.surface.width).forEach(each => label(pen, each.text, each.left, 35, alarm));
}
