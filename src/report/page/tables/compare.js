// Growth between two moments, of one run or of two files.

class Compare {
  constructor(section, data) {
    this.data = data;
    this.stories = data.tracks.map(() => null);
    this.left = chooser('From', [], () => this.fill());
    this.right = chooser('to', [], () => this.fill());
    this.left.select.id = 'compare-from';
    this.right.select.id = 'compare-to';
    this.by = chooser('by', [['site', 'call site'], ['library', 'library']], () => this.fill());
    this.text = element('p', {id: 'compare-text'});
    section.append(element('div', {class: 'controls'}, this.left.label, this.right.label, this.by.label), this.text);
    const grew = row => element('span', {class: row.growth > 0 ? 'grew' : ''}, growth_text(row.growth));
    this.changes = element('div');
    section.append(this.changes);
    this.table = new Table(this.changes, [
      {key: 'name', title: 'Call site or library', text: true, show: row => row.name,
        cell: row => [element('span', {class: 'function'}, row.name), element('span', {class: 'place'}, row.more)]},
      bytes_column('before', 'Before', {hide: true}),
      bytes_column('after', 'After', {hide: true}),
      {key: 'growth', title: 'Growth', number: row => Math.abs(row.growth), show: row => bytes_text(row.growth), cell: grew},
      {key: 'blocks', title: 'Blocks', number: row => row.blocks, show: row => `${row.blocks > 0 ? '+' : ''}${count_text(row.blocks)}`},
    ], {sort: 'growth', first: 20, name: 'Growth'});
  }

  // Moments that can be compared: those of the shown story, and the end of every other file.
  set(story) {
    this.story = story;
    this.chosen = this.earlier = null;
    this.offer();
  }

  choose_moment(moment) {
    this.earlier = moment === this.chosen ? this.earlier : this.chosen;
    this.chosen = moment;
    this.offer();
  }

  offer() {
    const {story, data} = this;
    this.moments = new Map([
      ['begin', ['the start', story, 0]],
      ['peak', ['the peak', story, story.peak]],
      ['end', ['the end', story, story.events]],
    ]);
    if (this.chosen !== null) {
      this.moments.set('chosen', [`the chosen time, ${time_text(story.time_of(this.chosen), 1)}`, story, this.chosen]);
    }
    if (this.chosen !== null && this.earlier !== null) {
      this.moments.set('earlier', [`the previously chosen time, ${time_text(story.time_of(this.earlier), 1)}`, story, this.earlier]);
    }
    if (data.files.length > 1) {
      data.files.forEach((file, number) => {
        this.moments.set(`file${number}`, [`the end of ${file.name}`, null, number]);
      });
    }
    const choices = [...this.moments].map(([value, [text]]) => element('option', {value}, text));
    const keep = (select, wanted) => {
      select.replaceChildren(...choices.map(choice => choice.cloneNode(true)));
      select.value = wanted;
    };
    const [from, to] = this.usual();
    keep(this.left.select, from);
    keep(this.right.select, to);
    this.fill();
  }

  // Moments compared until the reader chooses others.
  usual() {
    const {files} = this.data;
    return [
      this.chosen !== null && this.earlier !== null ? 'earlier' : files.length > 1 ? 'file0' : 'begin',
      this.chosen !== null ? 'chosen' : files.length > 1 ? `file${files.length - 1}` : 'end',
    ];
  }

  sums(value) {
    const [, story, place] = this.moments.get(value);
    if (story) {
      return story.alive_by_stack(place);
    }
    const tracks = this.data.tracks.filter(track => track.file === place);
    const all = this.stories[place] ??= tracks.length > 0 ? new Story(this.data, tracks) : null;
    return all ? all.alive_by_stack(all.events) : {bytes: new Float64Array(this.data.stacks.node.length), blocks: new Float64Array(this.data.stacks.node.length)};
  }

  fill() {
    const {data} = this;
    const [before, after] = [this.sums(this.left.select.value), this.sums(this.right.select.value)];
    const by_site = this.by.select.value === 'site';
    const of_stack = by_site ? data.stacks.site : data.stacks.library;
    const rows = new Map();
    let [sum_before, sum_after] = [0, 0];
    of_stack.forEach((key, stack) => {
      sum_before += before.bytes[stack];
      sum_after += after.bytes[stack];
      if (before.blocks[stack] > 0 || after.blocks[stack] > 0) {
        const [name, more] = by_site ? data.site_parts(key) : [data.library_name(key), ''];
        const row = rows.get(key) ?? rows.set(key, {key, before: 0, after: 0, growth: 0, blocks: 0, name, more}).get(key);
        row.before += before.bytes[stack];
        row.after += after.bytes[stack];
        row.growth = row.after - row.before;
        row.blocks += after.blocks[stack] - before.blocks[stack];
      }
    });
    const change = sum_after - sum_before;
    this.text.textContent = `${bytes_text(sum_before)} before, ${bytes_text(sum_after)} after: ` +
      `${change === 0 ? 'the same' : `${bytes_text(Math.abs(change))} ${change > 0 ? 'more' : 'less'}`}.`;
    const changed = [...rows.values()].filter(row => row.growth !== 0 || row.blocks !== 0);
    this.table.set(changed);
    this.changes.hidden = changed.length === 0;
  }
}
