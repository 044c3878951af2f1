// Events of the tracks that the reader chose, as one sequence, which all views show.

class Story {
  constructor(data, tracks) {
    this.data = data;
    this.tracks = tracks;
    this.base_us = Math.min(...tracks.map(track => track.begin_us));
    this.events = tracks.reduce((sum, track) => sum + track.time.length, 0);
    this.rows = tracks.reduce((sum, track) => sum + track.from.length, 0);
    this.join();
    this.add_up();
    this.passes = passes_of(this);
    this.groups = {};
  }

  // Several tracks become one by time. A track alone keeps its order, also of events at the same
  // time, and its columns are used as they are.
  join() {
    const {tracks, events, rows} = this;
    this.numbers = tracks.length > 1 ? this.merge_order() : [null];
    this.first_rows = [];
    this.ooms = [];
    let first_row = 0;
    for (const track of tracks) {
      this.first_rows.push(first_row);
      first_row += track.from.length;
    }
    const alone = tracks.length === 1 ? tracks[0] : null;
    this.time = alone?.time ?? new Float64Array(events);
    this.from = alone?.from ?? new Uint32Array(rows);
    this.until = new Uint32Array(rows);
    this.bytes = alone?.bytes ?? new Float64Array(rows);
    this.stack = alone?.stack ?? new Uint32Array(rows);
    this.patterns = alone?.patterns ?? new Uint8Array(rows);
    // Which event a reserve is, of which track, and which of its reserves.
    this.reserve_of_event = new Map();
    tracks.forEach((track, index) => {
      const number = this.numbers[index];
      const shift = track.begin_us - this.base_us;
      const after = event => (number ? number[event] : event);
      const first = this.first_rows[index];
      for (let i = 0; i < track.from.length; i++) {
        this.until[first + i] = track.until[i] === NEVER ? events : after(track.until[i]);
      }
      track.reserve.event.forEach((event, i) => this.reserve_of_event.set(after(event), [index, i]));
      track.oom.event.forEach((event, i) => this.ooms.push({
        event: after(event), own: event, track, requested: track.oom.requested[i], free: track.oom.free[i], stack: track.oom.stack[i],
        title: this.data.strings[track.oom.title[i]], overcome: track.oom.overcome[i] === 1,
        why: i < track.oom.why.length ? this.data.strings[track.oom.why[i]] : '',
      }));
      if (!alone) {
        for (let event = 0; event < track.time.length; event++) {
          this.time[after(event)] = track.time[event] + shift;
        }
        for (let i = 0; i < track.from.length; i++) {
          this.from[first + i] = track.from[i] === 0 ? 0 : after(track.from[i] - 1) + 1;
        }
        this.bytes.set(track.bytes, first);
        this.stack.set(track.stack, first);
        this.patterns.set(track.patterns, first);
      }
    });
    this.ooms.sort((left, right) => left.event - right.event);
    this.oom_of_event = new Map(this.ooms.map(oom => [oom.event, oom]));
  }

  // The track of a row, and its number there.
  own_row(row) {
    let index = this.tracks.length - 1;
    while (this.first_rows[index] > row) {
      index--;
    }
    return [this.tracks[index], row - this.first_rows[index]];
  }

  address_of(row) {
    const [track, own] = this.own_row(row);
    const {place, address} = track.where();
    return address[place[own]];
  }

  stream_of(row) {
    const [track, own] = this.own_row(row);
    return track.stream[own];
  }

  // The range in which it was allocated, and its pool.
  range_of(row) {
    const [track, own] = this.own_row(row);
    return this.data.strings[track.range.length === 1 ? track.range[0] : track.range[own]];
  }

  pool_of(row) {
    const [track, own] = this.own_row(row);
    return this.data.strings[track.pool.length === 1 ? track.pool[0] : track.pool[own]];
  }

  // As PyTorch's viewer names the block.
  name_of(row) {
    const [track, own] = this.own_row(row);
    return `b${this.address_of(row).toString(16)}_${track.versions()[own]}`;
  }

  // The stack of its free; null where it was not freed.
  freed_by(row) {
    const [track, own] = this.own_row(row);
    return this.until[row] < this.events ? track.where().freed_by[own] : null;
  }

  // For each track, the number that each of its events has among all.
  merge_order() {
    const {tracks} = this;
    const next = tracks.map(() => 0);
    const numbers = tracks.map(track => new Uint32Array(track.time.length));
    for (let number = 0; number < this.events; number++) {
      let first = -1;
      let first_us = Infinity;
      for (let i = 0; i < tracks.length; i++) {
        const us = next[i] < tracks[i].time.length ? tracks[i].time[next[i]] + tracks[i].begin_us : Infinity;
        if (us < first_us) {
          first = i;
          first_us = us;
        }
      }
      numbers[first][next[first]++] = number;
    }
    return numbers;
  }

  // The sums at every moment, and the peak.
  add_up() {
    const {events, rows} = this;
    this.row_of_event = new Int32Array(events); // row + 1 where one begins, -(row + 1) where one ends
    this.total = new Float64Array(events + 1);
    this.reserved = new Float64Array(events + 1);
    this.allocations = new Uint32Array(events + 1);
    for (let row = 0; row < rows; row++) {
      if (this.from[row] === 0) {
        this.total[0] += this.bytes[row];
      } else {
        this.row_of_event[this.from[row] - 1] = row + 1;
      }
      if (this.until[row] < events) {
        this.row_of_event[this.until[row]] = -(row + 1);
      }
    }
    this.reserved[0] = this.tracks.reduce((sum, track) => sum + track.reserved_before, 0);
    this.peak = 0;
    for (let event = 0; event < events; event++) {
      const row = this.row_of_event[event];
      const bytes = row > 0 ? this.bytes[row - 1] : row < 0 ? -this.bytes[-row - 1] : 0;
      this.total[event + 1] = this.total[event] + bytes;
      this.allocations[event + 1] = this.allocations[event] + (row > 0 ? 1 : 0);
      const change = row === 0 ? this.reserve_of_event.get(event) : undefined;
      this.reserved[event + 1] = this.reserved[event] + (change ? this.tracks[change[0]].reserve.bytes[change[1]] : 0);
      if (this.total[event + 1] > this.total[this.peak]) {
        this.peak = event + 1;
      }
    }
    this.most = new Highest(this.total);
  }

  // The last moment that is not after this time.
  moment_at(us) {
    let low = 0;
    let high = this.events;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time[middle] <= us) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  // How many events of one of the tracks have happened.
  moment_of_track(index, moment) {
    const numbers = this.numbers[index];
    if (!numbers) {
      return moment;
    }
    let [low, high] = [0, numbers.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[middle] < moment) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  time_of(moment) {
    return this.events === 0 ? 0 : this.time[Math.max(0, moment - 1)];
  }

  // Calls `visit(row)` for every block that is alive.
  each_alive(moment, visit) {
    const {from, until} = this;
    for (let row = 0; row < from.length; row++) {
      if (from[row] <= moment && until[row] >= moment) {
        visit(row);
      }
    }
  }

  // Whether a block is temporary, early, late: bits that src/report/track.rs has set.
  shows(row, pattern) {
    return (this.patterns[row] & pattern) !== 0;
  }

  // For each stack its bytes and blocks, of the rows that `counts(row)`.
  by_stack(counts) {
    const bytes = new Float64Array(this.data.stacks.node.length);
    const blocks = new Float64Array(bytes.length);
    for (let row = 0; row < this.rows; row++) {
      if (counts(row)) {
        bytes[this.stack[row]] += this.bytes[row];
        blocks[this.stack[row]]++;
      }
    }
    return {bytes, blocks};
  }

  alive_by_stack(moment) {
    return this.by_stack(row => this.from[row] <= moment && this.until[row] >= moment);
  }

  allocated_by_stack() {
    return this.by_stack(row => this.from[row] > 0);
  }
}

const TEMPORARY = 1;
const EARLY = 2;
const LATE = 4;

// Where the largest of any range is, without looking at all of it.
class Highest {
  constructor(values) {
    this.values = values;
    this.of_chunk = new Uint32Array(Math.ceil(values.length / CHUNK));
    for (let i = 0; i < values.length; i++) {
      const chunk = Math.floor(i / CHUNK);
      if (i % CHUNK === 0 || values[i] > values[this.of_chunk[chunk]]) {
        this.of_chunk[chunk] = i;
      }
    }
  }

  // Returns the index of the largest in `first..=last`.
  within(first, last) {
    const {values, of_chunk} = this;
    let best = first;
    for (let i = first; i <= last;) {
      if (i % CHUNK === 0 && i + CHUNK - 1 <= last) {
        const candidate = of_chunk[i / CHUNK];
        best = values[candidate] > values[best] ? candidate : best;
        i += CHUNK;
      } else {
        best = values[i] > values[best] ? i : best;
        i++;
      }
    }
    return best;
  }
}

const CHUNK = 256;
