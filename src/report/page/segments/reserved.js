// Segments at a moment, with their blocks. The file contains those at the end. Those of an earlier
// moment are derived by walking back through the reserves: segments reserved since are removed, and
// segments released since are added.
//
// A segment here is {address, bytes, stream, pool, small, expandable, is_private, blocks, first,
// end}: its blocks are `first` to before `end` in the columns `blocks` (bytes, requested, state,
// stack), and tile it.

const FREE = 0;
const HELD = 1;
const PENDING = 2;

// For a past moment, a file contains requested sizes and addresses. Allocators like PyTorch's round
// sizes up to this,
const BLOCK_UNIT = 512;
// and leave a remainder of up to this size in the block, except in small or expandable segments.
// If an adjacent piece is free, the remainder counts as a part of that piece.
const REST_MOST = 1 << 20;
const SMALL_SEGMENT = 2 << 20;

class Reserved {
  constructor(data, track) {
    this.data = data;
    this.track = track;
    this.at_end = segments_at_end(data, track);
    this.lives = null;
  }

  // The segments, by address.
  at(moment) {
    if (moment >= this.track.time.length) {
      return this.at_end;
    }
    this.lives ??= segment_lives(this);
    const segments = this.lives.filter(life => life.from <= moment && life.until >= moment).map(life => ({...life}));
    return fill_segments(this.track, segments, moment);
  }
}

function segments_at_end(data, track) {
  const {segments, strings} = data;
  const number = data.tracks.indexOf(track);
  const made = [];
  let first = 0;
  segments.blocks.forEach((count, segment) => {
    if (segments.track[segment] === number) {
      made.push({
        address: segments.address[segment], bytes: segments.bytes[segment], stream: segments.stream[segment], pool: strings[segments.pool[segment]],
        small: segments.small[segment] === 1, expandable: segments.expandable[segment] === 1, is_private: segments.private[segment] === 1, stack: segments.stack[segment],
        blocks: data.blocks, first, end: first + count,
      });
    }
    first += count;
  });
  return made.sort((left, right) => left.address - right.address);
}

// All segments of the history, each with the moments `from` to `until` between which it was
// unchanged.
function segment_lives({data, track, at_end}) {
  const {reserve} = track;
  const lives = [];
  const begins = (segment, event) => lives.push({...segment, from: event + 1});
  const whole = new Map();
  let parts = [];
  at_end.forEach(segment => (segment.expandable ? parts.push({...segment, until: NEVER}) : whole.set(segment.address, {...segment, until: NEVER})));
  for (let i = reserve.event.length - 1; i >= 0; i--) {
    const event = reserve.event[i];
    const [begin, bytes] = [reserve.address[i], Math.abs(reserve.bytes[i])];
    const came = reserve.bytes[i] > 0;
    const pool = data.strings[reserve.pool[i]];
    const gone = {address: begin, bytes, stream: reserve.stream[i], pool, is_private: pool !== '0.0', small: bytes <= SMALL_SEGMENT,
      expandable: reserve.part[i] === 1, until: event};
    if (gone.expandable) {
      parts = came ? without_part(parts, gone, begins) : with_part(parts, gone, begins);
      continue;
    }
    const here = whole.get(begin);
    if (here) {
      begins(here, event);
    }
    came ? whole.delete(begin) : whole.set(begin, gone);
  }
  [...whole.values(), ...parts].forEach(segment => begins(segment, -1));
  return lives.sort((left, right) => left.address - right.address);
}

// Removes this part from the ranges, as it was before the part was reserved.
function without_part(parts, {address, bytes, until}, begins) {
  return parts.flatMap(range => {
    const [first, last, end] = [range.address, range.address + range.bytes, address + bytes];
    if (first >= end || last <= address) {
      return [range];
    }
    begins(range, until);
    return [[first, address], [end, last]].filter(([from, to]) => from < to)
      .map(([from, to]) => ({...range, address: from, bytes: to - from, until}));
  });
}

// Adds this part to the ranges, as it was before the part was released. Adjacent ranges merge.
function with_part(parts, part, begins) {
  const [address, end] = [part.address, part.address + part.bytes];
  const touches = range => range.address <= end && range.address + range.bytes >= address && range.stream === part.stream;
  const beside = parts.filter(touches);
  beside.forEach(range => begins(range, part.until));
  const from = Math.min(address, ...beside.map(range => range.address));
  const to = Math.max(end, ...beside.map(range => range.address + range.bytes));
  return [...parts.filter(range => !touches(range)), {...part, ...beside[0], address: from, bytes: to - from, until: part.until}];
}

// For each address of the track, one more than the row that is there, and whether a stream only may
// still use it. The answer for the last moment is kept: the mouse asks again and again.
function rows_at(track, moment) {
  if (track.rows_at?.moment === moment) {
    return track.rows_at;
  }
  const {place, address, wait} = track.where();
  const row_at = new Uint32Array(address.length);
  const waits = new Uint8Array(address.length);
  const {from, until} = track;
  // Rows begin in order.
  for (let row = 0; row < from.length && from[row] <= moment; row++) {
    if (until[row] >= moment) {
      row_at[place[row]] = row + 1;
    }
  }
  for (let i = 0; i < wait.row.length; i++) {
    const row = wait.row[i];
    if (until[row] < moment && until[row] + wait.moments[i] >= moment && row_at[place[row]] === 0) {
      row_at[place[row]] = row + 1;
      waits[place[row]] = 1;
    }
  }
  track.rows_at = {moment, row_at, waits};
  return track.rows_at;
}

function fill_segments(track, segments, moment) {
  const {row_at, waits} = rows_at(track, moment);
  const {address} = track.where();
  const blocks = {bytes: [], requested: [], state: [], stack: []};
  const push = (bytes, requested, state, stack) => {
    blocks.bytes.push(bytes);
    blocks.requested.push(requested);
    blocks.state.push(state);
    blocks.stack.push(stack);
  };
  const here = Array.from(row_at.keys()).filter(place => row_at[place] > 0);
  let next = 0;
  for (const segment of segments) {
    const segment_end = segment.address + segment.bytes;
    const rest_most = segment.expandable || segment.bytes <= SMALL_SEGMENT ? 0 : REST_MOST;
    segment.blocks = blocks;
    segment.first = blocks.bytes.length;
    let at = segment.address;
    const free_until = end => {
      const gap = end - at;
      if (gap > 0 && gap <= rest_most && segment.first < blocks.bytes.length) {
        blocks.bytes[blocks.bytes.length - 1] += gap;
      } else if (gap > 0) {
        push(gap, 0, FREE, 0);
      }
      at = end;
    };
    while (next < here.length && address[here[next]] < segment.address) {
      next++;
    }
    for (; next < here.length && address[here[next]] < segment_end; next++) {
      const place = here[next];
      const row = row_at[place] - 1;
      free_until(address[place]);
      const room = Math.min(next + 1 < here.length ? address[here[next + 1]] : Infinity, segment_end) - at;
      const bytes = Math.min(room, Math.max(1, Math.ceil(track.bytes[row] / BLOCK_UNIT)) * BLOCK_UNIT);
      push(bytes, track.bytes[row], waits[place] ? PENDING : HELD, track.stack[row]);
      at += bytes;
    }
    free_until(segment_end);
    segment.end = blocks.bytes.length;
  }
  return segments;
}
