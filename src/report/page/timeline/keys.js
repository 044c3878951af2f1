// The ways to stack the blocks of the timeline. Each has the names of all bands, and tells which of
// them a block belongs to.

const STACKED_BY = [['site', 'call site'], ['function', 'function'], ['library', 'library'], ['thread', 'function of the thread'], ['stream', 'stream'],
  ['range', 'range'], ['pool', 'pool'], ['kind', 'kind']];

// Returns the names, each a name and its place, and a number for each stack (`of_stack`) or for
// each row (`of_row`).
function keys_of(story, kind) {
  const {data} = story;
  switch (kind) {
    case 'function': {
      const numbers = new Numbers();
      const of_site = Uint32Array.from(data.sites.function, (_, site) => numbers.of(data.site_function(site).split(' < ')[0] || data.site_place(site)));
      return {of_stack: Uint32Array.from(data.stacks.site, site => of_site[site]), parts: numbers.names()};
    }
    case 'library':
      return {of_stack: data.stacks.library, parts: Array.from(data.libraries.name, (_, library) => [data.library_name(library), ''])};
    case 'thread':
      return {of_stack: data.stacks.thread, parts: Array.from(data.threads.name, (_, thread) => data.thread_parts(thread))};
    case 'stream':
      return keys_of_rows(story, row => `stream ${story.stream_of(row)}`);
    case 'range':
      return keys_of_rows(story, row => story.range_of(row) || 'in no range');
    case 'pool':
      return keys_of_rows(story, row => pool_name(story.pool_of(row)));
    case 'kind':
      return keys_of_rows(story, row => kind_of(story, row));
    default:
      return {of_stack: data.stacks.site, parts: Array.from(data.sites.place, (_, site) => data.site_parts(site))};
  }
}

function keys_of_rows(story, name_of) {
  const numbers = new Numbers();
  const of_row = new Uint32Array(story.rows);
  for (let row = 0; row < story.rows; row++) {
    of_row[row] = numbers.of(name_of(row));
  }
  return {of_row, parts: numbers.names()};
}

class Numbers {
  constructor() {
    this.all = new Map();
  }

  of(name) {
    const number = this.all.get(name);
    return number ?? this.all.set(name, this.all.size).size - 1;
  }

  names() {
    return [...this.all.keys()].map(name => [name, '']);
  }
}

function pool_name(pool) {
  return pool === '0.0' ? 'default pool' : `private pool ${pool}`;
}

// By the names of the section on waste. A block may be of several kinds: the first counts.
function kind_of(story, row) {
  return story.until[row] >= story.events ? 'never freed' : story.shows(row, TEMPORARY) ? 'temporary'
    : story.shows(row, EARLY) ? 'allocated early' : story.shows(row, LATE) ? 'freed late' : 'other';
}
