#!/usr/bin/env python3
"""Reports in headless Chromium: every view is there and says the right numbers, hover, zoom, search and choice work, names
stay names, the console is silent and no request leaves the page.

usage: scripts/report-test.py COMMAND [--out DIR] [--speed ENTRIES]
COMMAND is the cachealloc command. --out keeps the reports and pictures of them; --speed says how long a report of so many
entries takes to make and to open, and checks nothing. Without Chromium (CHROMIUM names it) nothing is tested, which is said.
"""
import argparse
import copy
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import chromium  # noqa: E402
import report_snapshots  # noqa: E402

READY = "document.documentElement?.dataset.ready === 'yes' || document.getElementById('state')?.dataset.wrong"
wrong = []


def check(condition, what):
    if not condition:
        wrong.append(what)
        print(f'report-test: WRONG: {what}')


class Page:
    """A report that is open, with the questions that the tests ask."""

    def __init__(self, browser, path, name):
        self.browser, self.name = browser, name
        browser.open(path)
        browser.until(READY, f'{name} does not get ready')
        self.url = pathlib.Path(path).resolve().as_uri()

    def check(self, condition, what):
        check(condition, f'{self.name}: {what}')

    def run(self, script):
        return self.browser.run(script)

    def text(self, selector):
        return self.run(f'document.querySelector({json.dumps(selector)})?.textContent ?? ""')

    def box(self, selector):
        """In the window, brought into view."""
        return self.run(f'''(() => {{
            const one = document.querySelector({json.dumps(selector)});
            one.scrollIntoView({{block: 'center'}});
            const box = one.getBoundingClientRect();
            return {{x: box.x, y: box.y, width: box.width, height: box.height}};
        }})()''')

    def frame(self):
        """Waits until what was asked for is drawn."""
        self.run('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')

    def painted(self, selector):
        """How many different colours a canvas shows."""
        return self.run(f'''(() => {{
            const canvas = document.querySelector({json.dumps(selector)});
            const copy = document.createElement('canvas');
            [copy.width, copy.height] = [canvas.width, canvas.height];
            const pen = copy.getContext('2d', {{willReadFrequently: true}});
            pen.drawImage(canvas, 0, 0);
            const {{data}} = pen.getImageData(0, 0, copy.width, copy.height);
            const seen = new Set();
            for (let at = 0; at < data.length; at += 4) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
            return seen.size;
        }})()''')

    def pick(self, selector, value):
        self.run(f'''(() => {{
            const one = document.querySelector({json.dumps(selector)});
            one.value = {json.dumps(value)};
            one.dispatchEvent(new Event(one.tagName === 'SELECT' ? 'change' : 'input'));
        }})()''')
        self.frame()

    def silent(self):
        """Last of all: no errors, and nothing but the file was loaded."""
        self.check(self.browser.console == [], f'the console says {self.browser.console}')
        others = [url for url in self.browser.requests if url != self.url]
        self.check(others == [], f'it asks for {others}')
        self.check(self.text('#state') == '', self.text('#state'))


def sums(snapshot):
    """Peak, end and number of allocations of the only device, by other means than the report's."""
    alive, peak, count, blocks = 0, 0, 0, {}
    for entry in snapshot['device_traces'][0]:
        if entry['action'] == 'alloc':
            blocks[entry['addr']] = entry['size']
            alive, count = alive + entry['size'], count + 1
        elif entry['action'] == 'free_completed':
            alive -= blocks.pop(entry['addr'])
        peak = max(peak, alive)
    return peak, alive, count


def test_numbers(page, snapshot):
    peak, end, count = sums(snapshot)
    shown = page.run('(({story}) => [story.total[story.peak], story.total[story.events], story.allocations[story.events]])(report)')
    page.check(shown == [peak, end, count], f'peak, end and allocations are {shown}, not {[peak, end, count]}')
    for library in ('site', 'library'):
        page.pick('#timeline select', library)
        totals = page.run('''(({story, timeline}) => [0, story.peak, story.events >> 1, story.events].map(moment =>
            [story.total[moment], timeline.groups.at(moment).reduce((sum, bytes) => sum + bytes, 0)]))(report)''')
        page.check(all(total == bands for total, bands in totals), f'bands by {library} add up to others: {totals}')
    page.pick('#timeline select', 'site')
    flame = page.run('report.flame.sums[0]')
    page.check(flame == peak, f'the flame graph shows {flame}')
    segments = sum(segment['total_size'] for segment in snapshot['segments'])
    reserved = page.run('report.story.reserved[report.story.events]')
    page.check(reserved == segments, f'{reserved} are reserved at the end, not {segments}')
    ooms = sum(entry['action'] == 'oom' for entry in snapshot['device_traces'][0])
    page.check(page.run("document.querySelectorAll('#ooms h3').length") == ooms, f'not {ooms} are out of memory')


def test_timeline(page):
    browser = page.browser
    box = page.box('#timeline canvas')
    page.check(page.painted('#timeline canvas') > 8, 'the timeline is blank')
    middle, low = box['x'] + box['width'] * 0.6, box['y'] + box['height'] * 0.8
    browser.mouse('mouseMoved', middle, low)
    page.frame()
    tip = page.text('#tip')
    page.check(not page.run("document.getElementById('tip').hidden"), 'hovering the timeline says nothing')
    for wanted in ('live ', 'reserved ', 'A block of ', 'allocated at', '.py:'):
        page.check(wanted in tip, f'the timeline says nothing of {wanted!r}: {tip}')
    span = lambda: page.run('report.timeline.view[1] - report.timeline.view[0]')
    whole = span()
    browser.mouse('mouseWheel', middle, low, deltaX=0, deltaY=-400)
    page.frame()
    zoomed = span()
    page.check(zoomed < whole * 0.7, f'the wheel does not zoom: {whole} -> {zoomed}')
    browser.drag((middle - 100, low), (middle + 50, low))
    page.frame()
    page.check(span() < zoomed * 0.3, f'dragging does not zoom: {zoomed} -> {span()}')
    page.run("document.querySelector('#timeline canvas').focus({preventScroll: true})")
    before = page.run('report.timeline.view[0]')
    browser.key('ArrowRight')
    page.check(page.run('report.timeline.view[0]') > before, 'the arrow does not move')
    before = span()
    browser.key('+')
    page.check(span() < before, 'the key + does not zoom')
    browser.key('0')
    page.check(span() == whole, 'the key 0 does not show all')
    browser.click(middle, low)
    page.frame()
    page.check('Chosen: ' in page.text('#chosen'), 'a click chooses nothing')
    page.check(page.run("document.getElementById('flame-what').value") == 'chosen', 'the flame graph does not follow')
    chosen = page.run('[report.flame.sums[0], report.story.total[report.timeline.chosen]]')
    page.check(chosen[0] == chosen[1], f'the flame graph shows {chosen}')
    page.check('chosen time' in page.text('#compare-to'), 'the chosen time cannot be compared')


def test_flame(page):
    browser = page.browser
    page.pick('#flame-what', 'peak')
    page.check(page.painted('#flame canvas') > 4, 'the flame graph is blank')
    colors = page.run('[0, 1].map(python => frame_color(report.data, report.data.frames.python.indexOf(python)))')
    page.check(colors[0] != colors[1], 'Python and native frames look the same')
    box = page.box('#flame canvas')
    at = (box['x'] + box['width'] * 0.2, box['y'] + 18 * 4.5)
    browser.mouse('mouseMoved', *at)
    tip = page.text('#tip')
    page.check('% of all' in tip and '.py:' in tip, f'hovering the flame graph says {tip!r}')
    browser.click(*at)
    page.frame()
    page.check(page.run('report.flame.top') != 0 and page.text('#flame-path') != '', 'a click does not widen')
    browser.key('Escape')
    page.check(page.run('report.flame.top') == 0, 'Escape does not go back')
    browser.key('ArrowDown')
    page.check(page.run('report.flame.focus') != 0, 'the arrow does not go down')
    page.pick('#flame-search', 'MODEL.py')
    page.check('found in' in page.text('#flame-found'), 'searching finds nothing')
    page.pick('#flame-search', '')
    everything = page.run('report.flame.boxes.length')
    page.pick('#flame-frames', 'python')
    page.check(page.run('report.flame.boxes.length') < everything, 'native frames are not left out')
    page.check(page.run('report.flame.sums[0] === report.story.total[report.story.peak]'), 'bytes are lost with the frames')
    page.pick('#flame-frames', 'all')
    for what in ('end', 'allocated', 'temporary'):
        page.pick('#flame-what', what)
        page.check(page.run('report.flame.sums[0]') > 0, f'nothing is {what}')
    page.pick('#flame-what', 'peak')


def test_tables(page):
    rows = lambda: page.run("document.querySelectorAll('#sites tbody tr').length")
    everything = rows()
    page.pick('#sites-search', 'train.py')
    page.check(0 < rows() < everything and ' of ' in page.text('#sites-count'), 'the search does not narrow')
    page.pick('#sites-search', '')
    page.run("document.querySelector('#sites th:last-child button').click()")
    sorted_ = page.run("document.querySelector('#sites th:last-child').getAttribute('aria-sort')")
    page.check(sorted_ == 'descending', f'the table is sorted {sorted_}')
    page.run("document.querySelector('#sites tbody tr').click()")
    page.check('.py:' in page.text('#sites .frames'), 'a row does not open')
    page.check('were live when' in page.text('#leaks-text'), 'the leak is not named')
    page.check('train.py:102' in page.text('#waste .table'), 'the site of the leak is not named')
    page.check('other allocation in between' in page.text('#temporary-text'), 'temporaries are not named')
    page.check(page.text('#more-waste') != '', 'early and late are missing')
    page.check('free inside segments' in page.text('#segments-text'), 'fragmentation is not named')
    page.check(page.painted('#segments canvas') > 5, 'the segments are blank')
    box = page.box('#segments canvas')
    page.browser.mouse('mouseMoved', box['x'] + 250, box['y'] + 6)
    page.check('Segment 0x' in page.text('#tip') and 'pool' in page.text('#tip'), f'a segment says {page.text("#tip")!r}')
    page.check('keeps growing' in page.text('#findings'), 'the growing site is not found')


def test_sizes(page, out):
    """Nothing sticks out, in either scheme; and pictures to look at."""
    for scheme in ('light', 'dark'):
        page.browser.scheme(scheme)
        for width in (1280, 400):
            page.browser.size(width, 900)
            page.run('scrollTo(0, 0)')
            page.frame()
            wide = page.run('document.documentElement.scrollWidth')
            page.check(wide <= width, f'it is {wide} wide in a window of {width}')
            page.check(page.painted('#timeline canvas') > 8, f'the timeline is blank at {width}, {scheme}')
            if out:
                height = page.run('document.documentElement.scrollHeight')
                clip = {'x': 0, 'y': 0, 'width': width, 'height': height, 'scale': 1}
                page.browser.picture(out / f'{page.name}-{width}-{scheme}.png', clip=clip, captureBeyondViewport=True)
    page.browser.scheme('light')
    page.browser.size(1280, 900)


def test_hostile(page):
    counts = page.run("[document.scripts.length, document.images.length, document.querySelectorAll('script, img, link, iframe').length]")
    page.check(counts == [3, 0, 3], f'names became elements: {counts}')
    page.check(page.run('document.title') == 'hostile.pickle', 'a name took the title')
    page.pick('#flame-what', 'end')
    for name in report_snapshots.HOSTILE[:-1]:
        page.pick('#flame-search', name)
        page.check('found in' in page.text('#flame-found') and 'found in 0 %' not in page.text('#flame-found'), f'{name!r} is not found')


def test_ranks(page):
    page.check('node7' in page.text('#facts') and '4711, 4712' in page.text('#facts'), f'whose they are: {page.text("#facts")}')
    page.check(page.run('document.title') == 'train.py', 'the program is not named')
    page.check(page.run("!document.getElementById('pick').hidden"), 'there is no selector of ranks')
    whole = page.run('report.story.total[report.story.events]')
    parts = []
    for value in page.run("[...document.querySelectorAll('#pick option')].map(option => option.value).slice(1)"):
        page.pick('#pick select', value)
        parts.append(page.run('report.story.total[report.story.events]'))
    page.check(len(parts) == 2 and sum(parts) == whole, f'ranks do not add up: {parts} and {whole}')
    page.pick('#pick select', 'all')
    page.check(page.run("document.getElementById('compare-from').value") == 'file0', 'files are not compared')


def test_moments(page):
    page.check(page.run("document.querySelector('#pick select').value") != 'all', 'moments of one process are added up')
    text = page.text('#compare-text')
    page.check('before' in text and ('more' in text or 'less' in text), f'nothing is compared: {text}')
    page.check('train.py:102' in page.text('#compare table'), 'what grew is not named')


def without_history(snapshot):
    less = copy.deepcopy(snapshot)
    less['device_traces'] = [[]]
    return less


def first_part(snapshot):
    """The same process, when two thirds of its entries had happened."""
    entries = snapshot['device_traces'][0]
    maker_entries = entries[:len(entries) * 2 // 3]
    freed = {}
    for entry in maker_entries:
        if entry['action'] == 'alloc':
            freed[entry['addr']] = entry
        elif entry['action'] == 'free_completed':
            freed.pop(entry['addr'])
    less = copy.deepcopy(snapshot)
    less['device_traces'] = [maker_entries]
    for segment in less['segments']:
        for block in segment['blocks']:
            entry = freed.get(block['address'])
            block['state'] = 'active_allocated' if entry else 'inactive'
            block['requested_size'] = entry['size'] if entry else 0
            block['frames'] = entry['frames'] if entry else []
    return less


def make(command, folder, name, *snapshots):
    """A report of snapshots, in files of their own."""
    paths = []
    for number, snapshot in enumerate(snapshots):
        path = folder / (f'{name}.pickle' if len(snapshots) == 1 else f'{name}{number}.pickle')
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
        paths.append(path)
    report = folder / f'{name}.html'
    subprocess.run([command, 'report', '--force', *paths, '-o', report], check=True)
    return report


def test(browser, command, folder, out):
    train = report_snapshots.train(24)
    ranks = [report_snapshots.train(20 + 4 * rank, rank) for rank in range(2)]
    reports = {
        'train': (make(command, folder, 'train', train), [lambda page: test_numbers(page, train), test_timeline, test_flame, test_tables]),
        'hostile': (make(command, folder, 'hostile', report_snapshots.train(3, hostile=True)), [test_hostile]),
        'ranks': (make(command, folder, 'ranks', *ranks), [test_ranks]),
        'moments': (make(command, folder, 'moments', first_part(train), train), [test_moments]),
        'state': (make(command, folder, 'state', without_history(train)), []),
        'nothing': (make(command, folder, 'nothing', {**train, 'segments': [], 'device_traces': []}), []),
    }
    browser.size(1280, 900)
    for name, (report, tests) in reports.items():
        page = Page(browser, report, name)
        for each in tests:
            each(page)
        if name in ('train', 'hostile'):
            test_sizes(page, out)
        page.silent()
        print(f'report-test: {name}: looked at')


def speed(browser, command, folder, entries):
    snapshot = folder / 'speed.pickle'
    # A process of its own, so that its memory is not taken for that of the command.
    maker = pathlib.Path(report_snapshots.__file__)
    subprocess.run([sys.executable, maker, snapshot, '--entries', str(entries)], check=True)
    begin = time.monotonic()
    child = os.posix_spawn(command, [command, 'report', snapshot, '-o', folder / 'speed.html'], os.environ)
    _, status, used = os.wait4(child, 0)
    took = time.monotonic() - begin
    check(status == 0, 'the command fails')
    memory = used.ru_maxrss / 1024
    print(f'snapshot {snapshot.stat().st_size / 1e6:.1f} MB, report {(folder / "speed.html").stat().st_size / 1e6:.2f} MB, '
          f'made in {took:.2f} s with {memory:.0f} MiB')
    browser.size(1280, 900)
    page = Page(browser, folder / 'speed.html', 'speed')
    print(f'{page.run("report.data.files[0].entries")} entries; ready after {page.run("performance.now()"):.0f} ms, '
          f'{page.run("performance.memory.usedJSHeapSize") / 1e6:.0f} MB of JavaScript')
    page.run('''window.timed = async (what, act) => {
        const times = [];
        for (let round = 0; round < 20; round++) {
            await new Promise(requestAnimationFrame);
            const begin = performance.now();
            act(round);
            await new Promise(requestAnimationFrame);
            times.push(performance.now() - begin);
        }
        times.sort((left, right) => left - right);
        return `${what}: median ${times[10].toFixed(1)} ms, worst ${times[19].toFixed(1)} ms`;
    }''')
    actions = {
        'zoom': 'report.timeline.zoom(round < 10 ? 0.7 : 1.4)',
        'hover': 'report.timeline.pointer = [300 + round * 30, 250, 300, 250]; tell_of_timeline(report.timeline)',
        'choose a moment (flame graph, legend, comparison)': 'report.timeline.choose_moment(report.story.events * round / 20 | 0)',
        'regroup': "report.story.groups = {}; report.timeline.regroup(round % 2 ? 'site' : 'library')",
        'flame graph of temporaries': "report.flame.choose(round % 2 ? 'temporary' : 'allocated')",
    }
    for what, act in actions.items():
        print('  ' + page.run(f'timed({json.dumps(what)}, round => {{ {act} }})'))
    page.silent()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', type=pathlib.Path)
    parser.add_argument('--out', type=pathlib.Path)
    parser.add_argument('--speed', type=int, metavar='ENTRIES')
    options = parser.parse_args()
    path = chromium.find()
    if not path:
        print('report-test: skipped: no Chromium here (apt-get install chromium, or CHROMIUM=path)')
        # Under CI, where it is installed, a test that is skipped would pass for ever: tests/skip.rs.
        return 1 if os.environ.get('CI') else 0
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, chromium.Browser(path) as browser:
        folder = options.out or pathlib.Path(temporary)
        if options.speed:
            speed(browser, options.command.resolve(), folder, options.speed)
        else:
            test(browser, options.command.resolve(), folder, options.out)
    print(f'report-test: {len(wrong)} wrong' if wrong else 'report-test: all well')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
