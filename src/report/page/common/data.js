// The data of this page, as src/report/layout.rs lays them out: a small head in JSON, and columns
// of numbers, deflated.
//
// A "moment" is a number of events that have happened: 0 is before all, `events` after all. A row
// is a block; it is alive at the moments `from <= moment <= until`.

class Columns {
  constructor(columns, raw) {
    this.raw = raw;
    this.places = new Map();
    let at = 0;
    for (const column of columns) {
      this.places.set(column.name, {...column, at});
      at += column.bytes;
    }
    if (at !== raw.length) {
      throw new Error(`the columns have ${raw.length} bytes instead of ${at}`);
    }
  }

  // Variable-length integers, seven bits a byte, lowest first. Beyond 32 bits by multiplication:
  // the shifts of JavaScript know no more.
  numbers(name, Kind) {
    const column = this.places.get(name);
    if (!column) {
      throw new Error(`the column ${name} is missing`);
    }
    const {raw} = this;
    const {kind, count} = column;
    const made = new Kind(count);
    let at = column.at;
    let before = 0;
    for (let i = 0; i < count; i++) {
      let byte = raw[at++];
      let number = byte & 127;
      for (let factor = 128; byte > 127; factor *= 128) {
        byte = raw[at++];
        number += (byte & 127) * factor;
      }
      if (kind === 'delta') {
        before += number;
        number = before;
      } else if (kind === 'int') {
        number = number % 2 === 0 ? number / 2 : -(number + 1) / 2;
      }
      made[i] = number;
    }
    return made;
  }

  text(name) {
    const {at, bytes} = this.places.get(name);
    return new TextDecoder().decode(this.raw.subarray(at, at + bytes));
  }
}

class Data {
  constructor(head, columns) {
    Object.assign(this, head);
    if (this.version !== 1) {
      throw new Error(`its data have version ${this.version}`);
    }
    this.strings = JSON.parse(columns.text('strings'));
    const table = (name, fields, Kind = Uint32Array) => Object.fromEntries(
      fields.map(field => [field, columns.numbers(`${name}.${field}`, Kind)]));
    this.frames = table('frame', ['name', 'short', 'file', 'line', 'source', 'python'], Float64Array);
    this.nodes = table('node', ['parent', 'frame']);
    this.stacks = table('stack', ['node', 'site', 'library', 'thread']);
    this.sites = table('site', ['place', 'function', 'file']);
    this.libraries = table('library', ['name']);
    this.threads = table('thread', ['name', 'file']);
    this.segments = table('segment',
      ['track', 'address', 'bytes', 'stream', 'small', 'pool', 'private', 'expandable', 'stack', 'blocks'], Float64Array);
    this.blocks = table('block', ['bytes', 'requested', 'state', 'stack'], Float64Array);
    this.tracks.forEach((track, number) => {
      const prefix = `track${number}`;
      track.time = columns.numbers(`${prefix}.time`, Float64Array);
      track.from = columns.numbers(`${prefix}.from`, Uint32Array);
      track.until = columns.numbers(`${prefix}.life`, Uint32Array);
      for (let row = 0; row < track.until.length; row++) {
        // 0 is "never freed"; anything else is one more than the number of moments after the first.
        track.until[row] = track.until[row] === 0 ? NEVER : track.from[row] + track.until[row] - 1;
      }
      track.bytes = columns.numbers(`${prefix}.bytes`, Float64Array);
      track.stack = columns.numbers(`${prefix}.stack`, Uint32Array);
      track.stream = columns.numbers(`${prefix}.stream`, Float64Array);
      // The numbers of texts; one alone where all rows have the same.
      track.range = columns.numbers(`${prefix}.range`, Uint32Array);
      track.pool = columns.numbers(`${prefix}.pool`, Uint32Array);
      track.patterns = columns.numbers(`${prefix}.patterns`, Uint8Array);
      // Where the blocks were, which is needed, and read, when a reader asks for the segments of
      // the past.
      let where = null;
      track.where = () => (where ??= {
        place: columns.numbers(`${prefix}.place`, Uint32Array),
        address: columns.numbers(`${prefix}.address`, Float64Array),
        freed_by: columns.numbers(`${prefix}.freed_by`, Uint32Array),
        wait: table(`${prefix}.wait`, ['row', 'moments']),
      });
      // How often the address of each block was freed before: a part of PyTorch's name for the
      // block.
      let versions = null;
      track.versions = () => (versions ??= versions_of(track.where(), table(`${prefix}.version`, ['row', 'number'])));
      track.reserve = table(`${prefix}.reserve`, ['event', 'bytes', 'address', 'stream', 'pool', 'part', 'stack'], Float64Array);
      track.pass = table(`${prefix}.pass`, ['begin', 'length', 'range', 'depth']);
      track.oom = table(`${prefix}.oom`, ['event', 'requested', 'free', 'stack', 'title', 'overcome', 'why'], Float64Array);
    });
  }

  // The frames of a stack, innermost first.
  frames_of(stack) {
    const frames = [];
    for (let node = this.stacks.node[stack]; node !== 0; node = this.nodes.parent[node - 1]) {
      frames.push(this.nodes.frame[node - 1]);
    }
    return frames;
  }

  // The whole name, and the one that fits on a line.
  frame_name(frame) {
    return this.strings[this.frames.name[frame]];
  }

  frame_short(frame) {
    return this.strings[this.frames.short[frame]];
  }

  // "train.py:88"; where there is no line, the library and the offset in it.
  frame_place(frame) {
    const file = file_name(this.strings[this.frames.file[frame]]);
    const line = this.frames.line[frame];
    return file === '' ? '' : this.frames.source[frame] ? `${file}:${line}` : `${file}+0x${line.toString(16)}`;
  }

  site_place(site) {
    return this.strings[this.sites.place[site]];
  }

  site_function(site) {
    return this.strings[this.sites.function[site]];
  }

  // The function and its callers, and where they are. Where a function is not known, its place
  // comes first.
  site_parts(site) {
    const [name, place] = [this.site_function(site), this.site_place(site)];
    return name === '' || name === '??' ? [place, ''] : [name, place];
  }

  // The function that a thread runs, and its file.
  thread_parts(thread) {
    return [this.strings[this.threads.name[thread]], file_name(this.strings[this.threads.file[thread]])];
  }

  library_name(library) {
    return this.strings[this.libraries.name[library]];
  }
}

const NEVER = 0xffffffff;

// Rows come by the moment at which they begin, so the earlier rows of an address were freed, but
// for those that the file names.
function versions_of({place, address}, others) {
  const versions = new Uint32Array(place.length);
  const earlier = new Uint32Array(address.length);
  for (let row = 0; row < place.length; row++) {
    versions[row] = earlier[place[row]]++;
  }
  others.row.forEach((row, index) => { versions[row] = others.number[index]; });
  return versions;
}

async function load_data() {
  const head = JSON.parse(document.getElementById('head').textContent);
  const letters = atob(document.getElementById('blob').textContent.trim());
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) {
    packed[i] = letters.charCodeAt(i);
  }
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const raw = new Uint8Array(await new Response(unpacked).arrayBuffer());
  return new Data(head, new Columns(head.columns, raw));
}
