// The blocks of the timeline one by one, as soon as the reader has zoomed in so far that they can
// be counted: each has an outline, and the one under the mouse and the chosen one stand out.

// Blocks times columns that one picture may cost.
const BLOCKS_WORK_MOST = 8e6;
// Blocks that are lower than this many pixels have no outline.
const BLOCK_LEAST = 3;

// The rows that are live at one of these moments, in the order in which they are stacked; null if
// there are too many.
function rows_in_view({story, groups}, moments) {
  let steps = 1;
  for (let column = 1; column < moments.length; column++) {
    steps += moments[column] !== moments[column - 1] ? 1 : 0;
  }
  const most = BLOCKS_WORK_MOST / steps;
  const [first, last] = [moments[0], moments[moments.length - 1]];
  const found = Array.from({length: groups.count}, () => []);
  let count = 0;
  // Rows come by the moment at which they begin.
  for (let row = 0; row < story.rows && (story.from[row] <= last || story.tracks.length > 1); row++) {
    if (story.from[row] <= last && story.until[row] >= first) {
      found[groups.of_row(row)].push(row);
      if (++count > most) {
        return null;
      }
    }
  }
  return found.flat();
}

// Outlines of blocks. Where the picture does not change from one column to the next, one line does
// for all of them.
class Outlines {
  constructor(pen) {
    this.pen = pen;
    this.open = new Map(); // for each row its first column at these edges, and the edges
  }

  // Notes that the block has these edges from this column of pixels on.
  at(row, column, low, high) {
    const now = this.open.get(row);
    if (now === undefined) {
      this.line(column, low, column, high);
    } else if (now.high !== high || now.low !== low) {
      this.line(now.since, now.high, column, now.high);
    } else {
      now.seen = column;
      return;
    }
    this.open.set(row, {since: column, low, high, seen: column});
  }

  // Ends the blocks that were not seen in this column.
  end(column) {
    for (const [row, now] of this.open) {
      if (now.seen !== column) {
        this.line(now.since, now.high, column, now.high);
        this.line(column, now.low, column, now.high);
        this.open.delete(row);
      }
    }
  }

  finish(column) {
    this.open.forEach(now => this.line(now.since, now.high, column, now.high));
  }

  line(left, from, right, to) {
    this.pen.moveTo(LEFT + left, from);
    this.pen.lineTo(LEFT + right, to);
  }
}

// Returns whether the blocks are drawn.
function paint_outlines(timeline, pen, moments, y_of) {
  const {story} = timeline;
  const rows = rows_in_view(timeline, moments);
  if (!rows) {
    return false;
  }
  const marked = new Map([timeline.hovered, timeline.block].filter(row => row >= 0).map(row => [row, []]));
  const [lowest, highest] = timeline.tall ?? [0, timeline.highest];
  const least = BLOCK_LEAST * ((highest - lowest) / (y_of(lowest) - y_of(highest)));
  const outlines = new Outlines(pen);
  pen.strokeStyle = css('--card');
  pen.lineWidth = 0.75;
  pen.globalAlpha = 0.7;
  pen.beginPath();
  for (let column = 0; column < moments.length; column++) {
    const moment = moments[column];
    if (column > 0 && moment === moments[column - 1]) {
      continue;
    }
    let height = 0;
    for (const row of rows) {
      if (story.from[row] <= moment && story.until[row] >= moment) {
        const low = height;
        height += story.bytes[row];
        if (story.bytes[row] >= least && height > lowest && low < highest) {
          outlines.at(row, column, y_of(low), y_of(height));
        }
        marked.get(row)?.push({column, moment, low: y_of(low), high: y_of(height)});
      }
    }
    outlines.end(column);
  }
  outlines.finish(moments.length);
  pen.stroke();
  pen.globalAlpha = 1;
  marked.forEach((places, row) => paint_marked_block(pen, moments, places, row === timeline.block));
  return true;
}

// Fills one block in all columns.
function paint_marked_block(pen, moments, places, is_chosen) {
  pen.beginPath();
  for (const {column, moment, low, high} of places) {
    let end = column + 1;
    while (end < moments.length && moments[end] === moment) {
      end++;
    }
    // One pixel at least: the smallest block can be seen.
    pen.rect(LEFT + column, Math.min(high, low - 1), end - column, Math.max(1, low - high));
  }
  pen.fillStyle = is_chosen ? css('--mark') : css('--ink');
  pen.globalAlpha = is_chosen ? 0.75 : 0.35;
  pen.fill();
  pen.globalAlpha = 1;
}

// The rows at a moment from below, as they are stacked.
function stacked_rows({story, groups}, moment) {
  const rows = Array.from({length: groups.count}, () => []);
  story.each_alive(moment, row => rows[groups.of_row(row)].push(row));
  return rows.flat();
}

// The bytes below a row at a moment, as they are stacked.
function bytes_below(timeline, rows, at) {
  return rows.slice(0, at).reduce((sum, row) => sum + timeline.story.bytes[row], 0);
}

// Chooses the next block above or below, by the keyboard, and shows its tooltip.
function step_to_block(timeline, step) {
  if (timeline.chosen === null) {
    timeline.choose_moment(timeline.moment_of((timeline.view[0] + timeline.view[1]) / 2));
  }
  const {chosen, story} = timeline;
  const rows = stacked_rows(timeline, chosen);
  if (rows.length === 0) {
    return;
  }
  const now = rows.indexOf(timeline.block);
  const at = now < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, now + step));
  const row = rows[at];
  timeline.choose_block(row);
  const below = bytes_below(timeline, rows, at);
  const box = timeline.surface.canvas.getBoundingClientRect();
  const x = Math.max(LEFT, Math.min(timeline.surface.width, timeline.x_of(timeline.value_of_moment(chosen))));
  timeline.bring_into_height(below, below + story.bytes[row]);
  tip.release();
  tip.show(box.left + x, box.top + (timeline.y_at?.(below + story.bytes[row] / 2) ?? 0), ...row_lines(story, row));
}
