// Puts the page together: reads the data, makes the views, tells all of them what the reader
// chooses.

async function main() {
  const data = await load_data();
  const section = name => document.getElementById(name);
  const choose = moment => {
    flame.choose_moment(moment);
    segments.choose_moment(moment);
    compare.choose_moment(moment);
  };
  const timeline = new Timeline(section('timeline'), choose);
  const show_moment = moment => {
    timeline.choose_moment(moment);
    section('timeline').scrollIntoView({block: 'start'});
  };
  const ranges = new Ranges(section('ranges'), data, show_moment);
  const flame = new Flame(section('flame'));
  const sites = new Sites(section('sites'), data);
  const waste = new Waste(section('waste'), data);
  const segments = new Segments(section('segments'), data, moment => timeline.choose_moment(moment));
  timeline.chose_block = row => segments.mark(row < 0 ? null : parse_address(timeline.story.name_of(row)));
  const ooms = new Ooms(section('ooms'), data, show_moment);
  const compare = new Compare(section('compare'), data);
  const views = {timeline, ranges, flame, sites, waste, segments, ooms, compare};
  const show = tracks => {
    const story = new Story(data, tracks);
    Object.values(views).forEach(view => view.set(story));
    tell_facts(data, story);
    window.report = {data, story, ...views}; // for a closer look from the console
  };
  const pick = offer_tracks(data, show);
  const redraw = () => [timeline, flame, segments, segments.events].forEach(view => view.draw());
  window.addEventListener('resize', redraw);
  dark.changed.push(() => {
    redraw();
    timeline.tell_legend(timeline.chosen ?? timeline.story.peak);
  });
  listen_to_theme();
  listen_to_tip();
  const address = new Address(states_of(views, pick));
  window.report.address = address;
  section('state').remove();
  address.show();
  document.documentElement.dataset.ready = 'yes';
}

// A selector where there is more than one device or rank: all together, each file, each device.
// Returns it.
function offer_tracks(data, show) {
  const {tracks, files} = data;
  const choices = [['all', 'all together', tracks]];
  files.forEach((file, number) => {
    const own = tracks.filter(track => track.file === number);
    if (files.length > 1 && own.length > 1) {
      choices.push([`file${number}`, file.name, own]);
    }
    own.forEach(track => choices.push([`track${tracks.indexOf(track)}`, `${files.length > 1 ? `${file.name}, ` : ''}device ${track.device}`, [track]]));
  });
  if (tracks.length === 0) {
    choices[0][2] = [EMPTY_TRACK];
  }
  const label = document.getElementById('pick');
  const select = label.querySelector('select');
  select.append(...choices.map(([value, text]) => element('option', {value}, text)));
  const show_picked = () => show(choices.find(choice => choice[0] === select.value)[2]);
  select.addEventListener('change', show_picked);
  label.hidden = tracks.length < 2;
  // Moments of one process follow each other and are not added up: the newest is shown.
  const first = data.same_process ? choices[choices.length - 1] : choices[0];
  select.value = first[0];
  show(first[2]);
  return select;
}

const EMPTY_TRACK = {
  file: 0, device: 0, begin_us: 0, reserved_before: 0, time: [], from: [], until: [], bytes: [], stack: [], patterns: [], stream: [], range: [], pool: [],
  reserve: {event: [], bytes: [], address: [], stack: [], part: []}, pass: {begin: [], length: [], range: [], depth: []}, oom: {event: [], requested: [], free: [], stack: [], title: [], overcome: [], why: []},
};

function tell_facts(data, story) {
  const {events} = story;
  const facts = [
    ['Peak', bytes_text(story.total[story.peak])],
    ['Reserved at the peak', bytes_text(story.reserved[story.peak])],
    ['Live at the end', bytes_text(story.total[events])],
    ['Allocations', count_text(story.allocations[events])],
    ['Recorded', events > 1 ? time_text(story.time[events - 1]) : 'no history'],
    ...facts_of_files(data),
  ];
  document.getElementById('facts').replaceChildren(...facts.map(([name, text]) =>
    element('div', {}, element('dt', {}, name), element('dd', {}, text))));
}

// Facts from the files; different values are shown together.
function facts_of_files(data) {
  const settings = name => [...new Set(data.files.flatMap(file => file.settings.filter(([key]) => key === name).map(([, value]) => value)))].join(', ');
  const taken = Math.max(...data.files.map(file => file.taken_us));
  const dropped = data.files.reduce((sum, file) => sum + file.dropped, 0);
  const devices = new Set(data.tracks.map(track => track.device)).size;
  return [
    ['Program', settings('program')],
    ['Host', settings('host')],
    ['Process', settings('process')],
    ['Rank', settings('rank')],
    ['Devices', devices > 1 ? count_text(devices) : ''],
    ['Files', data.files.length > 1 ? count_text(data.files.length) : ''],
    ['Entries', count_text(data.files.reduce((sum, file) => sum + file.entries, 0))],
    ['Entries lost', dropped > 0 ? count_text(dropped) : ''],
    ['Taken', taken > 0 ? new Date(taken / 1000).toLocaleString() : ''],
    ['Written by', data.files.every(file => file.ours) ? '' : 'PyTorch'],
  ].filter(([, text]) => text !== '');
}

main().catch(error => {
  const state = document.getElementById('state') ?? document.querySelector('main').appendChild(element('p', {id: 'state'}));
  state.textContent = `This report could not be shown: ${error.message}. It needs a browser of 2023 or later.`;
  state.dataset.wrong = 'yes';
  throw error;
});
