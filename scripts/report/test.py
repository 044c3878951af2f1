#!/usr/bin/env python3
"""Tests reports in headless Chromium: every view exists and shows the right numbers, hover, zoom, search and selection work,
names are not interpreted as markup, the console is silent and no request leaves the page.

usage: scripts/report/test.py COMMAND [--out DIR] [--speed ENTRIES]
COMMAND is the cachealloc command. --out keeps the reports and pictures of them; --speed prints how long a report of that
many entries takes to create and to open, and checks nothing. Without Chromium (CHROMIUM names it) the test is skipped with a message.
"""
import argparse
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
import report_flame as flame  # noqa: E402
import report_keyboard as keyboard  # noqa: E402
import report_segments as segments  # noqa: E402
import report_snapshots  # noqa: E402
import report_states as states  # noqa: E402
import report_timeline as timeline  # noqa: E402
import report_told as told  # noqa: E402
import report_views as views  # noqa: E402
from report_page import Page, check, wrong  # noqa: E402


def make(command, folder, name, *snapshots):
    """A report of snapshots, in separate files."""
    paths = []
    for number, snapshot in enumerate(snapshots):
        path = folder / (f'{name}.pickle' if len(snapshots) == 1 else f'{name}{number}.pickle')
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
        paths.append(path)
    report = folder / f'{name}.html'
    subprocess.run([command, 'report', '--force', *paths, '-o', report], check=True)
    return report


def text(command, what, snapshot, *options):
    """Output of a subcommand."""
    return subprocess.run([command, what, *options, snapshot], check=True, capture_output=True, text=True).stdout


def said(command, what, snapshot):
    """The JSON of a subcommand."""
    return json.loads(text(command, what, snapshot, '--json'))


def found(command, name, snapshot):
    """Result of the command for an address."""
    return json.loads(subprocess.run([command, 'find', name, snapshot, '--json'], check=True, capture_output=True, text=True).stdout)['found'][0]


def printed(command, snapshot, failed):
    """Returns everything that the commands print for a snapshot, also at the moments of failed allocations."""
    for words in (['findings'], ['findings', '--json'], ['fit'], ['fit', '--json'], ['top-sites', '--json']):
        yield text(command, words[0], snapshot, *words[1:])
    orders = [('peak', []), ('live', ['--at', 'end']), ('allocated', []), ('temporary', [])]
    orders += [('live', ['--at', f'#{moment}']) for moment in failed]
    for group in ('stack', 'line', 'function'):
        for order, at in orders:
            for form in ([], ['--json']):
                yield text(command, 'top-sites', snapshot, '-n', '0', '--by', order, *at, '--group', group, *form)


def test(browser, command, folder, out):
    train = report_snapshots.train(24)
    ranks = [report_snapshots.train(20 + 4 * rank, rank, ranges=True) for rank in range(2)]
    ranges = report_snapshots.with_account(report_snapshots.train(12, 0, ranges=True))
    reserved, reserved_moments = report_snapshots.reservations(7, 600)
    amounts = (pathlib.Path(__file__).resolve().parents[2] / 'src/text/tests/amounts.txt').read_text()
    amounts = [line.split('\t') for line in amounts.splitlines()]
    reports = {
        'train': (make(command, folder, 'train', train), [lambda page: told.test_amounts(page, amounts), lambda page: told.test_numbers(page, train),
                                                     timeline.test_timeline, views.test_links, lambda page: timeline.test_bands(page, 6),
                                                     lambda page: timeline.test_blocks(page, lambda name: found(command, name, folder / 'train.pickle')),
                                                     lambda page: segments.test_events(page, lambda name, _: found(command, name, folder / 'train.pickle')),
                                                     flame.test_flame, views.test_tables,
                                                     lambda page: told.test_fit(page, said(command, 'fit', folder / 'train.pickle')['devices']),
                                                     segments.test_slider, keyboard.test_keyboard, states.test_address,
                                                     lambda page: told.test_commands(
                                                         page, lambda failed: printed(command, folder / 'train.pickle', failed),
                                                         lambda sizes: page.run(f'{sizes}.map(bytes_text)'))]),
        'hostile': (make(command, folder, 'hostile', report_snapshots.train(3, hostile=True)), [views.test_hostile]),
        'ranks': (make(command, folder, 'ranks', *ranks), [views.test_ranks]),
        'moments': (make(command, folder, 'moments', report_snapshots.first_part(train), train), [views.test_moments]),
        'ranges': (make(command, folder, 'ranges', ranges), [lambda page: views.test_ranges(page, ranges), keyboard.test_lane,
                                                        lambda page: told.test_account(page, text(command, 'explain', folder / 'ranges.pickle'))]),
        'shortages': (make(command, folder, 'shortages', report_snapshots.with_shortages(train, 1000)),
                      [lambda page: views.test_shortages(page, 1000)]),
        'reserved': (make(command, folder, 'reserved', reserved),
                     [lambda page: segments.test_reserved(page, reserved_moments), segments.test_between]),
        'state': (make(command, folder, 'state', report_snapshots.without_history(train)), []),
        'nothing': (make(command, folder, 'nothing', {**train, 'segments': [], 'device_traces': []}), []),
    }
    browser.size(1280, 900)
    for name, (report, tests) in reports.items():
        page = Page(browser, report, name)
        for each in tests:
            each(page)
        if len(snapshots := list(folder.glob(f'{name}.pickle'))) == 1:
            told.test_told(page, said(command, 'findings', snapshots[0]))
        if name in ('train', 'hostile', 'shortages', 'ranges'):
            views.test_sizes(page, out)
        page.silent()
        print(f'report-test: {name}: looked at')


def speed(browser, command, folder, entries):
    snapshot = folder / 'speed.pickle'
    # In a separate process, so that its memory does not count as that of the command.
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
          f'{page.run("performance.memory.usedJSHeapSize") / 1e6:.0f} MB of JavaScript, {browser.page_mib()} MiB in all')
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
        'choose a moment (flame graph, segments, legend, comparison)': 'report.timeline.choose_moment(report.story.events * round / 20 | 0)',
        'regroup': "report.story.groups = {}; report.timeline.regroup(round % 2 ? 'site' : 'library')",
        'flame graph of temporaries': "report.flame.choose(round % 2 ? 'temporary' : 'allocated')",
    }
    for what, act in actions.items():
        print('  ' + page.run(f'timed({json.dumps(what)}, round => {{ {act} }})'))
    page.silent()


def look(path, options):
    with tempfile.TemporaryDirectory() as temporary, chromium.Browser(path) as browser:
        folder = options.out or pathlib.Path(temporary)
        if options.speed:
            speed(browser, options.command.resolve(), folder, options.speed)
        else:
            test(browser, options.command.resolve(), folder, options.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('command', type=pathlib.Path)
    parser.add_argument('--out', type=pathlib.Path)
    parser.add_argument('--speed', type=int, metavar='ENTRIES')
    options = parser.parse_args()
    path = chromium.find()
    if not path:
        print('report-test: skipped: no Chromium here (apt-get install chromium, or CHROMIUM=path)')
        # Under CI, where it is installed, a skipped test would pass unnoticed: tests/skip.rs.
        return 1 if os.environ.get('CI') else 0
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    try:
        look(path, options)
    except (OSError, TimeoutError) as error:
        # A browser that crashes once on a busy machine is not an error; a second crash is.
        print(f'report-test: begun anew: {error}')
        look(path, options)
    print(f'report-test: {len(wrong)} wrong' if wrong else 'report-test: all well')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
