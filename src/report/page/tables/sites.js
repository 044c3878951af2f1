// Tables: one component, and the table of call sites.

// `columns`: {key, title, text, show(row), number(row), hide}. A row that opens shows `open(row)`.
class Table {
  constructor(parent, columns, {sort, open, first = 20, name}) {
    this.columns = columns;
    this.sort = sort;
    this.ascending = false;
    this.open = open;
    this.first = first;
    this.shown = first;
    this.body = element('tbody');
    this.heads = columns.map(column => element('th', {class: column_class(column), scope: 'col'},
      element('button', {type: 'button', click: () => this.sort_by(column)}, column.title)));
    this.more = element('button', {type: 'button', click: () => {
      this.shown *= 5;
      this.fill();
    }});
    parent.append(element('div', {class: 'table'}, element('table', {'aria-label': name},
      element('thead', {}, element('tr', {}, ...this.heads)), this.body)), this.more);
  }

  set(rows) {
    this.rows = rows;
    this.shown = this.first;
    this.fill();
  }

  sort_by(column) {
    this.ascending = this.sort === column.key ? !this.ascending : Boolean(column.text);
    this.sort = column.key;
    this.fill();
  }

  fill() {
    const column = this.columns.find(column => column.key === this.sort);
    const factor = this.ascending ? 1 : -1;
    const order = column.text
      ? (left, right) => factor * column.show(left).localeCompare(column.show(right))
      : (left, right) => factor * (column.number(left) - column.number(right));
    this.rows.sort(order);
    this.columns.forEach((each, index) => {
      const sorted = each === column ? (this.ascending ? 'ascending' : 'descending') : null;
      sorted ? this.heads[index].setAttribute('aria-sort', sorted) : this.heads[index].removeAttribute('aria-sort');
    });
    this.body.replaceChildren(...this.rows.slice(0, this.shown).map(row => this.line(row)));
    const left = this.rows.length - this.shown;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${count_text(left)} left)`;
  }

  line(row) {
    const cells = this.columns.map(column => element('td', {class: column_class(column)}, ...[column.cell ? column.cell(row) : column.show(row)].flat()));
    if (!this.open) {
      return element('tr', {}, ...cells);
    }
    const line = element('tr', {class: 'opens', tabindex: 0, 'aria-expanded': 'false'}, ...cells);
    const toggle = () => {
      if (line.getAttribute('aria-expanded') === 'true') {
        line.nextSibling.remove();
        line.setAttribute('aria-expanded', 'false');
      } else {
        line.after(element('tr', {}, element('td', {class: 'stacks', colspan: this.columns.length}, ...this.open(row))));
        line.setAttribute('aria-expanded', 'true');
      }
    };
    line.addEventListener('click', toggle);
    line.addEventListener('keydown', event => {
      if (event.key === 'Enter' || event.key === ' ') {
        event.preventDefault();
        toggle();
      }
    });
    return line;
  }
}

function column_class(column) {
  return [column.text ? 'text' : '', column.hide ? 'narrow-hide' : ''].join(' ').trim() || undefined;
}

// First column of every table of sites: the function and its callers, with their places.
function site_column(data) {
  return {
    key: 'site', title: 'Call site', text: true,
    show: row => data.site_parts(row.site).join(' '),
    cell: row => {
      const [name, place] = data.site_parts(row.site);
      return [element('span', {class: 'function'}, name), element('span', {class: 'place'}, place)];
    },
  };
}

function bytes_column(key, title, more = {}) {
  return {key, title, number: row => row[key], show: row => bytes_text(row[key]), ...more};
}

function count_column(key, title, more = {}) {
  return {key, title, number: row => row[key], show: row => count_text(row[key]), ...more};
}

// The largest stacks of a site, by these sums.
function stacks_of_site(data, site, sums, blocks, most = 4) {
  const stacks = [];
  data.stacks.site.forEach((of, stack) => of === site && sums[stack] > 0 && stacks.push(stack));
  stacks.sort((left, right) => sums[right] - sums[left]);
  const shown = stacks.slice(0, most).flatMap(stack => [
    element('h3', {}, `${bytes_text(sums[stack])} in ${plural(blocks[stack], 'block')}, ${data.library_name(data.stacks.library[stack])}`),
    frame_list(data, stack)]);
  if (stacks.length > most) {
    shown.push(element('p', {class: 'soft'}, `and ${plural(stacks.length - most, 'stack')} more`));
  }
  return shown.length > 0 ? shown : [element('p', {class: 'soft'}, 'no stack')];
}

class Sites {
  constructor(section, data) {
    this.data = data;
    this.search = element('input', {
      type: 'search', id: 'sites-search', placeholder: 'file, function or library', 'aria-label': 'Search call sites',
      input: () => this.filter(),
    });
    this.count = element('span', {class: 'soft', role: 'status', id: 'sites-count'});
    section.append(element('div', {class: 'controls'}, this.search, this.count));
    this.table = new Table(section, [
      site_column(data),
      {key: 'library', title: 'Library', text: true, hide: true, show: row => row.library},
      bytes_column('peak', 'At the peak'),
      bytes_column('end', 'At the end'),
      bytes_column('allocated', 'Allocated in total', {hide: true}),
      count_column('allocations', 'Allocations', {hide: true}),
      count_column('temporary', 'Temporary', {hide: true}),
      bytes_column('largest', 'Largest block', {hide: true}),
    ], {sort: 'peak', name: 'Call sites', open: row => stacks_of_site(data, row.site, this.sums, this.blocks)});
  }

  set(story) {
    this.story = story;
    const {data} = this;
    const rows = data.sites.place.length;
    const sites = Array.from({length: rows}, (_, site) => (
      {site, library: '', peak: 0, end: 0, allocated: 0, allocations: 0, temporary: 0, largest: 0, any: 0}));
    this.sums = new Float64Array(data.stacks.node.length);
    this.blocks = new Float64Array(data.stacks.node.length);
    for (let row = 0; row < story.rows; row++) {
      const stack = story.stack[row];
      const site = sites[data.stacks.site[stack]];
      const bytes = story.bytes[row];
      site.any++;
      site.peak += story.from[row] <= story.peak && story.until[row] >= story.peak ? bytes : 0;
      site.end += story.until[row] >= story.events ? bytes : 0;
      if (story.from[row] > 0) {
        site.allocated += bytes;
        site.allocations++;
      }
      site.temporary += story.shows(row, TEMPORARY) ? 1 : 0;
      site.largest = Math.max(site.largest, bytes);
      this.sums[stack] += bytes;
      this.blocks[stack]++;
    }
    data.stacks.site.forEach((site, stack) => {
      if (this.sums[stack] > 0 && !sites[site].library.split(', ').includes(data.library_name(data.stacks.library[stack]))) {
        sites[site].library += `${sites[site].library ? ', ' : ''}${data.library_name(data.stacks.library[stack])}`;
      }
    });
    this.all = sites.filter(site => site.any > 0);
    this.filter();
  }

  filter() {
    const needle = this.search.value.trim().toLowerCase();
    const {data} = this;
    const rows = this.all.filter(row => needle === '' || [data.site_place(row.site), data.site_function(row.site), row.library,
      data.strings[data.sites.file[row.site]]].some(text => text.toLowerCase().includes(needle)));
    this.count.textContent = needle ? `${count_text(rows.length)} of ${count_text(this.all.length)}` : plural(this.all.length, 'call site');
    this.table.set(rows);
  }
}
