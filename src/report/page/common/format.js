'use strict';
// Numbers as people read them, as the command writes them (text/units.rs), and elements. Nothing
// here or elsewhere sets innerHTML: every text of the data becomes a text node, whatever it holds.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// 1536 -> "1.50 KiB": three digits, as many as one can compare at a glance.
function bytes_text(bytes) {
  let unit = 0;
  let amount = Math.abs(bytes);
  while (amount >= 1023.5 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit++;
  }
  const digits = unit === 0 ? 0 : three_digits(amount);
  return `${bytes < 0 ? '-' : ''}${amount.toFixed(digits)} ${UNITS[unit]}`;
}

// Number of digits after the point.
function three_digits(amount) {
  return amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
}

function count_text(count) {
  return Math.round(count).toLocaleString('en-US');
}

// A difference, with its sign.
function growth_text(bytes) {
  return `${bytes > 0 ? '+' : ''}${bytes_text(bytes)}`;
}

function plural(count, thing) {
  return `${count_text(count)} ${thing}${count === 1 ? '' : 's'}`;
}

// A span of microseconds; or a moment, since the begin, with `step`: the distance that must still
// be distinguishable.
function time_text(us, step = 0) {
  const digits = unit => (step > 0 ? Math.min(6, Math.max(0, Math.ceil(-Math.log10(step / unit)))) : three_digits(us / unit));
  if (us < 1e3 && step < 1e3) {
    return `${us.toFixed(0)} us`;
  }
  if (us < 1e6 && step < 1e6) {
    return `${(us / 1e3).toFixed(digits(1e3))} ms`;
  }
  if (us < 600e6) {
    return `${(us / 1e6).toFixed(digits(1e6))} s`;
  }
  if (step === 0) {
    return `${count_text(Math.floor(us / 60e6))} min`;
  }
  const hours = Math.floor(us / 3600e6);
  const minutes = Math.floor(us / 60e6) % 60;
  const seconds = (us / 1e6) % 60;
  return `${hours > 0 ? `${hours} h ` : ''}${minutes} min ${seconds.toFixed(step < 1e6 ? 1 : 0)} s`;
}

// Never rounded up: 100.00 % is all.
function share_text(part, whole) {
  const share = whole > 0 ? part / whole : 0;
  return `${(Math.floor(1e4 * share + 1e-9) / 100).toFixed(2)} %`;
}

function file_name(path) {
  return path.slice(path.lastIndexOf('/') + 1);
}

// Letters that a reader does not see or that turn the order of a line round, as in text/plain.rs.
const STEERING = new RegExp('[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f' +
  '\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\u{1bca0}-\\u{1bca3}' +
  '\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]', 'gu');

function harmless(text) {
  return text.replace(STEERING, '\ufffd');
}

// element('td', {class: 'text'}, 'a', other_element). Attributes that are functions are listeners.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      made.addEventListener(name, value);
    } else if (value !== false && value !== undefined) {
      made.setAttribute(name, value === true ? '' : name === 'title' ? harmless(value).slice(0, TITLE_MOST) : value);
    }
  }
  made.append(...children.filter(child => child !== undefined && child !== null).map(child => (typeof child === 'string' ? harmless(child) : child)));
  return made;
}

const TITLE_MOST = 500;

// A labelled <select>; `choices` are [value, text].
function chooser(label, choices, changed) {
  const select = element('select', {change: () => changed(select.value)},
    ...choices.map(([value, text]) => element('option', {value}, text)));
  return {select, label: element('label', {}, `${label} `, select)};
}

// The frames of a stack as a list, innermost first.
function frame_list(data, stack) {
  return frames_as_list(data, data.frames_of(stack));
}

// The same in a few lines, for what follows the mouse: long runs of native frames between those of
// Python become one line.
function short_frame_list(data, stack) {
  const frames = data.frames_of(stack);
  const has_python = frames.some(frame => data.frames.python[frame]);
  const items = [];
  for (let at = 0; at < frames.length && items.length < FRAMES_SHOWN;) {
    let end = at;
    while (has_python && end < frames.length && !data.frames.python[frames[end]]) {
      end++;
    }
    if (end - at > NATIVE_RUN_MOST) {
      items.push(frames[at], `${end - at - 1} native frames`);
      at = end;
    } else {
      items.push(frames[at++]);
    }
  }
  return frames_as_list(data, items);
}

const FRAMES_SHOWN = 14;
const NATIVE_RUN_MOST = 3;

// A list of frames, and of texts between them.
function frames_as_list(data, frames) {
  const items = frames.map(frame => (typeof frame === 'string' ? element('li', {class: 'at'}, frame)
    : element('li', {style: `border-color: ${frame_color(data, frame)}`},
      `${data.frame_short(frame)} `, element('span', {class: 'at'}, data.frame_place(frame)))));
  return element('ul', {class: 'frames'}, ...items.length > 0 ? items : [element('li', {class: 'at'}, 'no stack was recorded')]);
}
