// Blocks between free pieces, which keep partly used segments, by call site.

class Between {
  constructor(section, data) {
    this.data = data;
    this.box = element('div', {id: 'between'});
    this.box.append(element('h3', {}, 'Blocks beside free memory'),
      element('p', {class: 'soft'}, 'These blocks separate free memory, which can neither be released nor serve larger requests until they are freed. ' +
        'A free piece counts for each call site next to it.'));
    section.append(this.box);
    this.table = new Table(this.box, [site_column(data), bytes_column('beside', 'Free beside it'), count_column('pieces', 'Pieces', {hide: true}),
      count_column('blocks', 'Blocks'), bytes_column('bytes', 'Their bytes', {hide: true})],
    {sort: 'beside', first: 5, name: 'Blocks beside free memory', open: row => stacks_of_site(data, row.site, this.sums.bytes, this.sums.blocks)});
  }

  set(segments) {
    const {data} = this;
    const sites = new Map();
    this.sums = {bytes: new Float64Array(data.stacks.node.length), blocks: new Float64Array(data.stacks.node.length)};
    for (const {blocks, first, end, waste} of segments) {
      if (waste === 0) {
        continue;
      }
      const is_free = block => block >= first && block < end && blocks.state[block] === FREE;
      const is_used = block => block >= first && block < end && blocks.state[block] !== FREE;
      const site = block => data.stacks.site[blocks.stack[block]];
      const line = key => sites.get(key) ?? sites.set(key, {site: key, beside: 0, pieces: 0, blocks: 0, bytes: 0}).get(key);
      for (let block = first; block < end; block++) {
        if (is_free(block)) {
          new Set([block - 1, block + 1].filter(is_used).map(site)).forEach(key => {
            line(key).beside += blocks.bytes[block];
            line(key).pieces++;
          });
        } else if (is_free(block - 1) || is_free(block + 1)) {
          line(site(block)).bytes += blocks.bytes[block];
          line(site(block)).blocks++;
          this.sums.bytes[blocks.stack[block]] += blocks.bytes[block];
          this.sums.blocks[blocks.stack[block]]++;
        }
      }
    }
    this.table.set([...sites.values()]);
    this.box.hidden = sites.size === 0;
  }
}
