// Memory that need not have been, under the names of DrGPUM (src/analysis/waste.rs says what each
// means, and which others a snapshot cannot tell).

class Waste {
  constructor(section, data) {
    this.data = data;
    const part = (id, title, box = section) => {
      const text = element('p', {id: `${id}-text`});
      box.append(element('h3', {}, title), text);
      return {text, table: null};
    };
    const table = (part, name, columns, sort, box = section) => {
      part.table = new Table(box, [site_column(data), ...columns], {
        sort, first: 10, name, open: row => stacks_of_site(data, row.site, part.sums.bytes, part.sums.blocks),
      });
    };
    const time = (key, title) => ({key, title, hide: true, number: row => row[key], show: row => (row[key] < 0 ? 'before' : time_text(row[key]))});
    const bytes = bytes_column('bytes', 'Bytes');
    const blocks = count_column('blocks', 'Blocks');
    this.leaks = part('leaks', 'Never freed');
    table(this.leaks, 'Never freed', [bytes, blocks, time('first', 'First'), time('last', 'Last')], 'bytes');
    this.temporary = part('temporary', 'Temporary allocations');
    table(this.temporary, 'Temporary allocations', [count_column('blocks', 'Allocations'),
      {key: 'share', title: 'Share of the site', hide: true, number: row => row.share, show: row => share_text(row.share, 1)},
      bytes_column('bytes', 'Total bytes'), time('life', 'Average lifetime')], 'blocks');
    const more = element('details', {id: 'more-waste'}, element('summary', {}, 'Where to look: early allocation and late deallocation'));
    section.append(more);
    this.early = part('early', 'Early allocation', more);
    table(this.early, 'Early allocation', [bytes, blocks, time('first', 'First'), time('last', 'Last')], 'bytes', more);
    this.late = part('late', 'Late deallocation', more);
    table(this.late, 'Late deallocation', [bytes, blocks, time('freed', 'Freed')], 'bytes', more);
  }

  set(story) {
    const {events} = story;
    this.blocks_of_site = new Uint32Array(this.data.sites.place.length);
    for (let row = 0; row < story.rows; row++) {
      this.blocks_of_site[this.data.stacks.site[story.stack[row]]]++;
    }
    const leaked = this.fill(this.leaks, story, row => story.until[row] >= events);
    this.leaks.text.textContent = leaked.blocks === 0 ? (story.allocations[events] === 0 ? 'No block is known.' : 'Every block was freed.')
      : `${plural(leaked.blocks, 'block')} (${bytes_text(leaked.bytes)}) were live when the snapshot was taken. ` +
        `${never_freed(story)}; a site whose first and last are far apart keeps growing.`;
    const short = this.fill(this.temporary, story, row => story.shows(row, TEMPORARY));
    this.temporary.text.textContent = short.blocks === 0 ? 'No block was freed right after its allocation.'
      : `${plural(short.blocks, 'block')} (${share_text(short.blocks, story.allocations[events])} of all allocations) were freed after at most ` +
        `${plural(this.data.temporary_between_max, 'other allocation')}: reuse one buffer instead.`;
    const early = this.fill(this.early, story, row => story.shows(row, EARLY));
    this.early.text.textContent = early.blocks === 0 ? 'No block was held at the peak and allocated before the first free.'
      : `${plural(early.blocks, 'block')} (${bytes_text(early.bytes)}) were held at the peak and allocated before the first free. ` +
        'Those that are first used after the peak could be allocated later. A snapshot does not show accesses: check the source.';
    const late = this.fill(this.late, story, row => story.shows(row, LATE));
    this.late.text.textContent = late.blocks === 0 ? 'No block was held at the peak and freed after the last allocation.'
      : `${plural(late.blocks, 'block')} (${bytes_text(late.bytes)}) were held at the peak and freed after the last allocation. ` +
        'Those that are last used before the peak could be freed earlier.';
  }

  // Adds up by call site the blocks that `counts(row)`.
  fill(part, story, counts) {
    const {stacks} = this.data;
    const sites = new Map();
    const sum = {bytes: 0, blocks: 0};
    for (let row = 0; row < story.rows; row++) {
      if (!counts(row)) {
        continue;
      }
      const site = stacks.site[story.stack[row]];
      const line = sites.get(site) ?? sites.set(site, {site, bytes: 0, blocks: 0, first: Infinity, last: -1, freed: -1, life: 0}).get(site);
      const begin = story.from[row] === 0 ? -1 : story.time_of(story.from[row]);
      line.bytes += story.bytes[row];
      line.blocks++;
      line.first = Math.min(line.first, begin);
      line.last = Math.max(line.last, begin);
      if (story.until[row] < story.events) {
        line.freed = Math.max(line.freed, story.time_of(story.until[row] + 1));
        line.life += story.time_of(story.until[row] + 1) - Math.max(0, begin);
      }
      sum.bytes += story.bytes[row];
      sum.blocks++;
    }
    sites.forEach(line => {
      line.life /= line.blocks;
      line.share = line.blocks / this.blocks_of_site[line.site];
    });
    part.sums = story.by_stack(counts);
    part.table.set([...sites.values()]);
    part.table.body.closest('.table').hidden = sum.blocks === 0;
    return sum;
  }
}

const WHY_TAKEN = new Map([
  ['exit', 'That was at the end of the program: they were never freed'],
  ['signal', 'That was when a signal ended the program'],
  ['shortage', 'That was when memory ran out: they may have been freed later'],
  ['asked', 'That was while the program ran: they may have been freed later'],
]);

// The meaning of live memory depends on why the snapshot was taken, which not all files record.
function never_freed({data, tracks}) {
  const taken = new Set(tracks.map(track => new Map(data.files[track.file].settings).get('taken')));
  const why = taken.size === 1 ? WHY_TAKEN.get([...taken][0]) : undefined;
  return why ?? 'If it was taken at the end of the program, they were never freed';
}
