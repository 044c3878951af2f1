// States that a reader can choose on this page, each with its name in the address and its usual
// value.

// In order of dependency. A moment chooses what the flame graph and the
// comparison show.
function states_of({timeline, ranges, flame, sites, waste, segments, compare}, pick) {
  // No moment is chosen in a new story.
  const choose = text => (text === '' ? pick.dispatchEvent(new Event('change'))
    : is_number(text, timeline.story.events) && timeline.choose_moment(Number(text)));
  const widen = text => flame.zoom(is_number(text, flame.no_stack) ? Number(text) : ROOT);
  const tables = {
    ranges: ranges.table, sites: sites.table, leaks: waste.leaks.table, temporary: waste.temporary.table, early: waste.early.table,
    late: waste.late.table, between: segments.between.table, grew: compare.table,
  };
  return [
    state('theme', () => document.documentElement.dataset.theme, theme => dark.choose(theme)),
    control('show', pick),
    state('before', () => compare.earlier, choose),
    state('at', () => timeline.chosen, choose),
    control('bands', timeline.groups_select),
    control('axis', timeline.axis_select),
    state('zoom', () => zoom_text(timeline), text => show_zoom(timeline, text)),
    control('flame', flame.what_select, () => (flame.moment === null ? 'peak' : 'chosen')),
    control('measure', flame.measure_select),
    control('frames', flame.frames_select),
    control('inverted', flame.invert),
    state('frame', () => flame.top || null, widen),
    control('find', flame.search),
    control('sites', sites.search),
    control('event', segments.events.search),
    control('colour', segments.kind_select),
    control('segments_order', segments.order_select),
    control('width', segments.scale_select),
    control('from', compare.left.select, () => compare.usual()[0]),
    control('to', compare.right.select, () => compare.usual()[1]),
    control('by', compare.by.select),
    ...Object.entries(tables).map(([name, table]) => order_of(`${name}_order`, table)),
  ];
}

// Usually it is empty.
function state(name, read, show) {
  return {name, read: () => String(read() ?? ''), usual: () => '', show};
}

// State of an input or a select; its usual value is the initial one, unless given.
function control(name, input, usual) {
  const is_box = input.type === 'checkbox';
  const read = () => (is_box ? (input.checked ? 'yes' : '') : input.value);
  const first = read();
  return {name, read, usual: usual ?? (() => first), show: text => {
    const is_there = input.options === undefined || [...input.options].some(option => option.value === text && !option.disabled);
    if (is_there) {
      is_box ? input.checked = text === 'yes' : input.value = text;
      input.dispatchEvent(new Event(is_box || input.options ? 'change' : 'input'));
    }
  }};
}

// The column by which a table is sorted, with a minus where it falls.
function order_of(name, table) {
  const read = () => `${table.ascending ? '' : '-'}${table.sort}`;
  const first = read();
  return {name, read, usual: () => first, show: text => {
    const key = text.replace(/^-/, '');
    if (table.columns.some(column => column.key === key)) {
      [table.sort, table.ascending] = [key, key === text];
      table.fill();
    }
  }};
}

// Microseconds or events. Empty: all of it.
function zoom_text({view: [begin, end], whole}) {
  return begin <= 0 && end >= whole ? '' : `${Math.round(begin)}-${Math.round(end)}`;
}

function show_zoom(timeline, text) {
  const [begin, end] = text.split('-');
  if (text === '') {
    timeline.show_all();
  } else if (is_number(begin, timeline.whole) && is_number(end, timeline.whole) && Number(end) > Number(begin)) {
    timeline.look_at(Number(begin), Number(end) - Number(begin));
  }
}

function is_number(text, most) {
  return /^[0-9]+$/.test(text) && Number(text) <= most;
}
