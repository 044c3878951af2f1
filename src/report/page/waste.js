// Memory that need not have been: blocks that nobody freed, and blocks that lived for no time.

class Waste {
  constructor(section, data) {
    this.data = data;
    this.leaks_text = element('p', {id: 'leaks-text'});
    section.append(element('h3', {}, 'Never freed'), this.leaks_text);
    this.leaks = new Table(section, [
      site_column(data),
      bytes_column('bytes', 'Bytes'),
      count_column('blocks', 'Blocks'),
      {key: 'first', title: 'First', hide: true, number: row => row.first, show: row => row.first < 0 ? 'before' : time_text(row.first)},
      {key: 'last', title: 'Last', hide: true, number: row => row.last, show: row => row.last < 0 ? 'before' : time_text(row.last)},
    ], {sort: 'bytes', first: 10, name: 'Never freed', open: row => stacks_of_site(data, row.site, this.alive.bytes, this.alive.blocks)});
    this.temporary_text = element('p', {id: 'temporary-text'});
    section.append(element('h3', {}, 'Temporary allocations'), this.temporary_text);
    this.temporary = new Table(section, [
      site_column(data),
      count_column('blocks', 'Allocations'),
      {key: 'share', title: 'Of the site', hide: true, number: row => row.share, show: row => share_text(row.share, 1)},
      bytes_column('bytes', 'Bytes in all'),
      {key: 'life', title: 'Lived on average', hide: true, number: row => row.life, show: row => time_text(row.life)},
    ], {sort: 'blocks', first: 10, name: 'Temporary allocations', open: row => stacks_of_site(data, row.site, this.short.bytes, this.short.blocks)});
  }

  set(story) {
    const {data} = this;
    const of = () => ({bytes: 0, blocks: 0, first: Infinity, last: -1, life: 0});
    const alive = new Map();
    const short = new Map();
    const all = new Map();
    const at = (map, site) => map.get(site) ?? map.set(site, {site, ...of()}).get(site);
    for (let row = 0; row < story.rows; row++) {
      const site = data.stacks.site[story.stack[row]];
      const begin = story.from[row] === 0 ? -1 : story.time_of(story.from[row]);
      all.set(site, (all.get(site) ?? 0) + 1);
      if (story.until[row] >= story.events) {
        const leak = at(alive, site);
        leak.bytes += story.bytes[row];
        leak.blocks++;
        leak.first = Math.min(leak.first, begin);
        leak.last = Math.max(leak.last, begin);
      } else if (begin >= 0 && story.is_temporary(row)) {
        const brief = at(short, site);
        brief.bytes += story.bytes[row];
        brief.blocks++;
        brief.life += story.time_of(story.until[row] + 1) - begin;
      }
    }
    short.forEach(row => {
      row.life /= row.blocks;
      row.share = row.blocks / all.get(row.site);
    });
    this.alive = story.by_stack('alive', story.events);
    this.short = story.by_stack('temporary');
    const sum = (map, key) => [...map.values()].reduce((total, row) => total + row[key], 0);
    const blocks = sum(alive, 'blocks');
    this.leaks_text.textContent = blocks === 0 ? 'Every block was freed.'
      : `${plural(blocks, 'block')} (${bytes_text(sum(alive, 'bytes'))}) were alive when the snapshot was taken. ` +
        'If it was taken when the program ended, nobody freed them; a site whose first and last are far apart keeps growing.';
    const many = sum(short, 'blocks');
    this.temporary_text.textContent = many === 0 ? 'No block was freed as soon as it was allocated.'
      : `${plural(many, 'block')} (${share_text(many, story.allocations[story.events])} of all allocations) were freed with at most ` +
        `${plural(data.temporary_between_max, 'other allocation')} in between: a buffer that is kept would do.`;
    this.leaks.set([...alive.values()]);
    this.temporary.set([...short.values()]);
    this.leaks.body.closest('.table').hidden = blocks === 0;
    this.temporary.body.closest('.table').hidden = many === 0;
  }
}
