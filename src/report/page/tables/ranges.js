// The ranges that the program named, and the growth of each pass through one. A pass is from the
// first entry of a range to its last (src/analysis/passes.rs).

// Passes of the shown device; none if several are shown, because each device has its own.
function passes_of(story) {
  if (story.tracks.length !== 1) {
    return [];
  }
  const {begin, length, range, depth} = story.tracks[0].pass;
  const passes = [];
  for (let i = 0; i < begin.length; i++) {
    const end = begin[i] + length[i];
    passes.push({begin: begin[i], end, range: range[i], depth: depth[i], grew: story.total[end] - story.total[begin[i]]});
  }
  return passes;
}

// Each range, and each time that the program went through it.
class Ranges {
  constructor(section, data, choose) {
    this.section = section;
    this.data = data;
    this.choose = choose;
    section.append(element('p', {class: 'soft'}, 'Growth of each pass through a range: the memory that was live after its last entry, minus ' +
      'the memory that was live before its first.'));
    const grew = (key, title, more = {}) => ({key, title, number: row => row[key], show: row => growth_text(row[key]), ...more});
    this.hint = section.appendChild(element('p', {}, 'Ranges belong to one device: choose a device above, at "Show".'));
    this.table = new Table(section, [
      {key: 'range', title: 'Range', text: true, show: row => row.name},
      count_column('times', 'Times'),
      grew('median', 'Typically grew by', {hide: true}),
      grew('most', 'At most'),
      grew('sum', 'In total'),
    ], {sort: 'sum', name: 'Ranges', open: row => this.passes_of(row)});
  }

  set(story) {
    this.story = story;
    const rows = new Map();
    story.passes.forEach(pass => (rows.get(pass.range) ?? rows.set(pass.range, []).get(pass.range)).push(pass));
    this.hint.hidden = story.tracks.length === 1;
    const has_any = story.tracks.some(({pass}) => pass.begin.length > 0);
    this.section.hidden = document.getElementById('nav-ranges').hidden = !has_any;
    this.table.set([...rows].map(([range, passes]) => {
      const sorted = passes.map(({grew}) => grew).sort((left, right) => left - right);
      return {
        name: this.data.strings[range], passes, times: passes.length, sum: sorted.reduce((sum, grew) => sum + grew, 0),
        median: sorted[sorted.length >> 1], most: sorted[sorted.length - 1],
      };
    }));
  }

  passes_of({passes}) {
    const {story} = this;
    const box = element('div');
    const table = new Table(box, [
      {key: 'begin', title: 'At', number: pass => pass.begin, show: pass => time_text(story.time_of(pass.begin + 1), 1)},
      {key: 'time', title: 'For', number: pass => this.length_of(pass), show: pass => time_text(this.length_of(pass))},
      {key: 'grew', title: 'Grew by', number: pass => pass.grew, show: pass => growth_text(pass.grew)},
      {key: 'show', title: '', number: pass => pass.end, show: () => '',
        cell: pass => element('button', {type: 'button', click: () => this.choose(pass.end)}, 'Show its end')},
    ], {sort: 'begin', name: 'Each time'});
    table.ascending = true;
    table.set([...passes]);
    return [box];
  }

  length_of({begin, end}) {
    return this.story.time_of(end) - this.story.time_of(Math.min(begin + 1, end));
  }
}
