#!/usr/bin/env node
// Opens snapshots in PyTorch's own memory viewer, in headless Chromium and from nowhere but this machine: every view
// of every device must draw, describe the block under the mouse, and write no error to the console. Leaves pictures.
import {execFileSync} from 'node:child_process';
import {existsSync, mkdirSync, readFileSync, readdirSync, rmSync} from 'node:fs';
import {createServer} from 'node:http';
import {createRequire} from 'node:module';
import {basename, dirname, join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';

const USAGE = `usage: scripts/report/viewer-test.mjs --viewer MemoryViz.js [--d3 DIR] [--out DIR] [SNAPSHOT...]
The viewer is torch/utils/viz/MemoryViz.js of PyTorch's sources, with the files beside it that it imports. d3 and
playwright-core are npm packages, found here or by NODE_PATH; CHROMIUM names the browser. Without a SNAPSHOT, one is
made on the simulated driver. Exit code: 0 all well, 1 something is wrong, 2 it could not run.`;
const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const require = createRequire(join(root, 'scripts/report', 'viewer-test.mjs'));

function fail(why) {
  console.error(`viewer-test: ${why}`);
  process.exit(2);
}

const options = {viewer: '', d3: '', out: join(root, '.out', 'viewer')};
const snapshots = [];
for (let words = process.argv.slice(2); words.length > 0;) {
  const word = words.shift();
  if (word === '-h' || word === '--help') {
    console.log(USAGE);
    process.exit(0);
  } else if (word.startsWith('--') && word.slice(2) in options) {
    options[word.slice(2)] = words.shift() || options[word.slice(2)];
  } else if (word.startsWith('-')) {
    fail(USAGE);
  } else {
    snapshots.push(resolve(word));
  }
}

if (!existsSync(options.viewer)) {
  fail('no viewer: VIEWER=path/to/MemoryViz.js, from torch/utils/viz of https://github.com/pytorch/pytorch');
}
const viewer = resolve(options.viewer);
const major = readFileSync(viewer, 'utf8').match(/\/d3@(\d+)/)?.[1] ?? '7';
const d3_folders = options.d3 ? [options.d3] : (require.resolve.paths('d3') ?? []).map(path => join(path, 'd3'));
const d3 = d3_folders.map(path => join(resolve(path), 'dist', 'd3.min.js')).find(path => existsSync(path));
const d3_version = d3 && JSON.parse(readFileSync(join(dirname(d3), '..', 'package.json'))).version;
if (d3_version?.split('.')[0] !== major) {
  const found = d3_version ?? 'none';
  fail(`this viewer needs d3 ${major}, found ${found}: npm install d3@${major}, then D3=node_modules/d3`);
}
let chromium;
try {
  ({chromium} = require('playwright-core'));
} catch {
  fail('no playwright-core: npm install playwright-core, then NODE_PATH=node_modules');
}
const browsers = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
const executablePath = process.env.CHROMIUM || browsers.find(path => existsSync(path));
if (!executablePath || !existsSync(executablePath)) {
  fail('no Chromium: apt-get install chromium, or CHROMIUM=path');
}
const out = resolve(options.out);
mkdirSync(out, {recursive: true});
const missing = snapshots.find(path => !existsSync(path));
if (missing) {
  fail(`no snapshot at ${missing}`);
}

function make_snapshot() {
  const made = () => readdirSync(out).filter(name => /^simulated-.*\.pickle$/.test(name));
  made().forEach(name => rmSync(join(out, name)));
  const simulated = execFileSync(join(root, 'scripts', 'sim-dir.sh'), ['checked'], {encoding: 'utf8'}).trim();
  const built = join(root, 'target', 'checked');
  const env = {
    ...process.env,
    LD_LIBRARY_PATH: simulated,
    LD_PRELOAD: join(built, 'libcachealloc.so'),
    CACHEALLOC_CONF: 'record:all,snapshot:simulated-%p.pickle',
  };
  execFileSync(join(built, 'random'), ['1', '2000', '2'], {cwd: out, env, stdio: 'pipe'});
  return made().map(name => join(out, name));
}
if (snapshots.length === 0) {
  try {
    snapshots.push(...make_snapshot());
  } catch (error) {
    fail(`no snapshot could be made: ${error.message}`);
  }
}

// All of d3 is one script of its package; the viewer's imports from elsewhere become parts of it.
function local(source) {
  return source
    .replace(/^import\s*\*\s*as\s+(\w+)\s+from\s*["']https?:[^"']*["']/gm, 'const $1 = globalThis.d3')
    .replace(/^import\s*(\{[^}]*\})\s*from\s*["']https?:[^"']*["']/gm, (_, names) =>
      `const ${names.replace(/\s+as\s+/g, ': ')} = globalThis.d3`);
}

const PAGE = `<!DOCTYPE html>
<html><head><meta charset="utf-8"><link rel="icon" href="data:,"></head>
<body><script src="/d3.js"></script><script type="module" src="/viewer/${basename(viewer)}"></script></body></html>`;
const server = createServer((request, response) => {
  const name = basename(request.url);
  const send = (type, text) => response.writeHead(200, {'Content-Type': type}).end(text);
  if (request.url === '/') {
    send('text/html', PAGE);
  } else if (request.url === '/d3.js') {
    send('text/javascript', readFileSync(d3));
  } else if (request.url.startsWith('/viewer/') && name.endsWith('.js') && existsSync(join(dirname(viewer), name))) {
    send('text/javascript', local(readFileSync(join(dirname(viewer), name), 'utf8')));
  } else {
    response.writeHead(404).end();
  }
});
await new Promise(ready => server.listen(0, '127.0.0.1', ready));
const home = `http://127.0.0.1:${server.address().port}/`;

// Runs in the page: what the visible view drew, and the positions of its largest blocks.
function look() {
  const drawings = [...document.querySelectorAll('body > div')].filter(div => div.querySelector('svg'));
  const drawn = drawings.filter(div => div.offsetParent !== null).at(-1);
  const hits = new Map();
  for (const svg of drawn?.querySelectorAll('svg') ?? []) {
    const box = svg.getBoundingClientRect();
    for (let x = 0.5; x < 160; x++) {
      for (let y = 0.5; y < 80; y++) {
        const at = [box.left + (box.width * x) / 160, box.top + (box.height * y) / 80];
        const element = document.elementFromPoint(...at);
        const data = element?.__data__;
        const kind = typeof data?.elem === 'number' || 'requested_size' in Object(data) ? 'block'
          : 'occupied' in Object(data) ? 'segment' : null;
        if (kind && svg.contains(element)) {
          const hit = hits.get(element) ?? {kind, points: []};
          hit.points.push(at);
          hits.set(element, hit);
        }
      }
    }
  }
  const largest = kind => {
    const all = [...hits.values()].filter(hit => hit.kind === kind).sort((a, b) => b.points.length - a.points.length);
    return all[0]?.points[all[0].points.length >> 1] ?? null;
  };
  const data = [...(drawn?.querySelectorAll('svg polygon, svg rect') ?? [])].map(shape => shape.__data__);
  return {
    shapes: data.filter(datum => ['elem', 'frames'].some(key => key in Object(datum))).length,
    legend: data.filter(datum => typeof datum === 'string'),
    block: largest('block'),
    segment: largest('segment'),
  };
}

// Runs in the page: the text about the block under the mouse; the other texts are the list of events.
function told() {
  const all = [...document.querySelectorAll('body > div pre')].filter(pre => !pre.__data__);
  return all.filter(pre => pre.offsetParent !== null).at(-1)?.textContent ?? '';
}

// Runs in the page: scrolls the last such event into view, and returns its position.
function event_at(action) {
  const all = [...document.querySelectorAll('body > div pre')].filter(pre => pre.__data__?.action === action);
  const visible = all.filter(pre => pre.offsetParent !== null).at(-1);
  visible?.scrollIntoView({block: 'center'});
  const box = visible?.getBoundingClientRect();
  return box ? [box.left + 20, box.top + box.height / 2] : null;
}

const browser = await chromium.launch({
  executablePath,
  args: ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
let wrong = 0;

async function open(path) {
  const name = basename(path, '.pickle');
  const page = await browser.newPage({viewport: {width: 1600, height: 1000}});
  let view = 'loading';
  const stacks = readFileSync(path).includes('filename');
  const complain = text => {
    console.log(`${name}: ${view}: ${text}`);
    wrong++;
  };
  page.setDefaultTimeout(120_000);
  page.on('console', message => message.type() === 'error' && complain(`console: ${message.text()}`));
  page.on('pageerror', error => complain(`page: ${error.message}`));
  page.on('crash', () => complain('the page crashed'));
  page.on('request', request => request.url().startsWith(home) || request.url().startsWith('data:')
    || complain(`asks for ${request.url()}`));
  await page.goto(home);
  const [views, devices] = [page.locator('select').nth(1), page.locator('select').nth(2)];
  const names = await views.locator('option').allTextContents();
  const stopped = new Promise(stop => page.once('pageerror', () => stop()));
  let begin = Date.now();
  await page.locator('input[type=file]').setInputFiles(path);
  await Promise.race([page.waitForFunction(() => document.querySelector('body > div svg')), stopped]);
  console.log(`${name}: opened in ${Date.now() - begin} ms`);
  const numbers = await devices.locator('option').allTextContents();
  if (numbers.length === 0) {
    complain('no device has anything');
  }
  for (const device of numbers) {
    await devices.selectOption(device);
    for (view of names) {
      begin = Date.now();
      await views.selectOption(view);
      await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
      const took = Date.now() - begin;
      const picture = join(out, `${name}-${device}-${view.replace(/\W+/g, '-').replace(/-$/, '').toLowerCase()}.png`);
      if (/settings/i.test(view)) {
        const text = await page.evaluate(told);
        if (!text.includes('"')) {
          complain('no settings');
        }
        await page.screenshot({path: picture});
        continue;
      }
      if (/state history/i.test(view)) {
        const at = await page.evaluate(event_at, 'alloc');
        if (at) {
          await page.mouse.click(...at);
        }
      }
      const drawn = await page.evaluate(look);
      const at = drawn.block ?? drawn.segment;
      if (drawn.shapes === 0 || !at) {
        complain('nothing is drawn');
      } else {
        await page.mouse.move(...at);
        const text = await page.evaluate(told);
        if (!/\d bytes\)/.test(text)) {
          complain(`nothing is said of the block under the mouse: ${JSON.stringify(text)}`);
        } else if (stacks && /^Active Memory/.test(view) && !/^.+:\d+:.+$/m.test(text)) {
          complain(`no stack is shown: ${JSON.stringify(text.slice(0, 200))}`);
        }
        const legend = drawn.legend.length > 0 ? `, legend: ${drawn.legend.join(', ')}` : '';
        console.log(`${name}: device ${device}: ${view}: ${drawn.shapes} shapes, ${took} ms${legend}`);
      }
      await page.screenshot({path: picture});
    }
  }
  await page.close();
}

try {
  for (const path of snapshots) {
    await open(path);
  }
} finally {
  await browser.close();
  server.close();
}
console.log(`pictures: ${out}`);
process.exitCode = wrong > 0 ? 1 : 0;
