#!/usr/bin/env python3
"""Makes the pictures of the documents, docs/report.png and docs/top.png, from a made-up training run on the simulated driver.

usage: scripts/report/pictures.py [--built DIR] [--review DIR]
--built: the folder with the command, the library and the simulated driver (target/checked). --review leaves docs/ as it is and
writes every screen to DIR to be looked at: the report on a desk and a phone, light and dark; terminals of 80 and 200 columns.
Needs Chromium and gcc.
"""
import argparse
import html
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests/it/command'))
import chromium  # noqa: E402
import screen  # noqa: E402

READY = "document.documentElement?.dataset.ready === 'yes'"
GROUND, INK, DIM = '#1e1e1e', '#d4d4d4', '#9a9a9a'
COLOURS = ['#3b3b3b', '#e05561', '#00cc00', '#d18f52', '#4aa5f0', '#c162de', '#00cccc', INK]


class Terminal(screen.Terminal):
    """A terminal that remembers colours."""

    def __init__(self, command, lines, columns):
        self.style, self.styles, self.wanted = (INK, GROUND, False), {}, (lines, columns)
        super().__init__([str(word) for word in command])

    def resize(self, lines, columns):
        super().resize(*self.wanted)

    def put(self, letter):
        # What a command prints is wrapped by the terminal; a screen is drawn within its columns.
        if self.at[1] >= self.columns and '1049' not in self.modes:
            self.at = (self.at[0] + 1, 0)
        self.styles[self.at] = self.style
        super().put(letter)

    def obey(self, what, letter):
        if letter != 'm':
            super().obey(what, letter)
            return
        codes = [int(code or 0) for code in what.split(';')]
        while codes:
            code = codes.pop(0)
            ink, ground, bold = self.style
            if code in (38, 48) and codes[:1] == [5]:
                number = codes[1]
                codes = codes[2:]
                code = (30 if code == 38 else 40) + number if number < 8 else (90 if code == 38 else 100) + number - 8 if number < 16 else 39
            if code == 0:
                self.style = (INK, GROUND, False)
            elif code in (1, 22):
                self.style = (ink, ground, code == 1)
            elif code == 2:
                self.style = (DIM, ground, bold)
            elif code == 7:
                self.style = (ground, ink, bold)
            elif code == 27:
                self.style = (INK, GROUND, bold)
            elif code == 39 or code // 10 in (3, 9):
                self.style = (INK if code == 39 else COLOURS[code % 10], ground, bold)
            elif code == 49 or code // 10 in (4, 10):
                self.style = (ink, GROUND if code == 49 else COLOURS[code % 10], bold)

    def page(self, title):
        """The screen as a page."""
        lines = []
        for number in range(self.lines):
            line = ''
            for column in range(self.columns):
                ink, ground, bold = self.styles.get((number, column), (INK, GROUND, False))
                letter = html.escape(self.cells.get((number, column), ' '))
                line += f'<b style="color:{ink};background:{ground};font-weight:{"bold" if bold else "normal"}">{letter}</b>'
            lines.append(line)
        # A row of the terminal is as high as its letters, so that bars of blocks join.
        return (f'<!DOCTYPE html><meta charset="utf-8"><title>{title}</title><body style="margin:0;background:{GROUND}"><pre style="margin:12px;font:13px/17px '
                f'DejaVu Sans Mono,monospace;display:inline-block">' + '\n'.join(lines) + '</pre>')


def picture_of_text(browser, folder, terminal, path):
    page = folder / 'terminal.html'
    page.write_text(terminal.page(path.name))
    browser.scheme('dark')
    browser.size(2400, 1400)
    browser.open(page)
    browser.until(f"document.readyState === 'complete' && document.title === '{path.name}'", 'the screen is not shown')
    box = browser.run('(box => [box.right + 12, box.bottom + 12])(document.querySelector("pre").getBoundingClientRect())')
    browser.picture(path, clip={'x': 0, 'y': 0, 'width': box[0], 'height': box[1], 'scale': 1}, captureBeyondViewport=True)


def picture_of_top(browser, folder, command, path, lines, columns, keys, wanted, seconds=2):
    """Takes a picture. `keys` are pairs of a text and a key, which is pressed once the screen shows the text."""
    terminal = Terminal([command, 'top', *wanted], lines, columns)
    try:
        for text, key in keys:
            terminal.wait_for(text)
            terminal.press(key)
        settled = time.monotonic() + seconds
        while time.monotonic() < settled:
            terminal.read(0.1)
        picture_of_text(browser, folder, terminal, path)
        terminal.press(b'q')
        terminal.wait_until(0)
    finally:
        os.close(terminal.ours)


def picture_of_command(browser, folder, command, path, columns):
    terminal = Terminal(command, 40, columns)
    terminal.wait_until(0)
    terminal.lines = max((line for line, _ in terminal.cells), default=0) + 1
    picture_of_text(browser, folder, terminal, path)
    os.close(terminal.ours)


def open_report(browser, report, scheme, width, height):
    browser.size(width, height)
    browser.scheme(scheme)
    browser.open(report)
    browser.until(READY, 'the report does not get ready')


def settle(browser):
    browser.run('new Promise(done => setTimeout(done, 300))')


def picture_of_report(browser, report, path):
    """The timeline with a block under the mouse, and below it the flame graph with Python's frames."""
    open_report(browser, report, 'light', 1000, 1130)
    browser.run("""(() => {
        const frames = document.getElementById('flame-frames');
        frames.value = 'python';
        frames.dispatchEvent(new Event('change'));
        document.getElementById('ooms').hidden = true;
    })()""")
    box = browser.run('(box => [box.x, box.y, box.width, box.height])(document.querySelector("#timeline canvas").getBoundingClientRect())')
    settle(browser)
    browser.mouse('mouseMoved', box[0] + box[2] * 0.4, box[1] + box[3] * 0.62)
    settle(browser)
    browser.picture(path)


def review(browser, folder, report, snapshot, command, process, out):
    for scheme in ('light', 'dark'):
        for name, width in (('desk', 1280), ('phone', 390)):
            open_report(browser, report, scheme, width, 900)
            settle(browser)
            height = browser.run('document.documentElement.scrollHeight')
            clip = {'x': 0, 'y': 0, 'width': width, 'height': height, 'scale': 1}
            browser.picture(out / f'report-{name}-{scheme}.png', clip=clip, captureBeyondViewport=True)
    for columns in (80, 200):
        for name, keys, wanted in (('all', [('q quit', b'')], []), ('process', [('CALL SITE', screen.DOWN), ('stack of', b'')], [process]),
                                   ('help', [('q quit', b'?')], [])):
            picture_of_top(browser, folder, command, out / f'top-{name}-{columns}.png', 24, columns, keys, wanted)
        for name, words in (('top-sites', [snapshot]), ('findings', [snapshot]), ('diff', [snapshot, snapshot]), ('fit', [snapshot]),
                            ('explain', [process]), ('stats', [process]), ('options', []), ('doctor', [])):
            picture_of_command(browser, folder, [command, name, *words], out / f'{name}-{columns}.png', columns)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--built', type=pathlib.Path, default=ROOT / 'target/checked')
    parser.add_argument('--review', type=pathlib.Path)
    options = parser.parse_args()
    built = options.built.resolve()
    path = chromium.find() or sys.exit('pictures: no Chromium here (apt-get install chromium, or CHROMIUM=path)')
    command = built / 'cachealloc'
    driver = subprocess.run([ROOT / 'scripts/sim-dir.sh', built.name], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as temporary, chromium.Browser(path) as browser:
        folder = pathlib.Path(temporary) / 'demo'
        folder.mkdir()
        snapshot, report = folder / 'train.pickle', folder / 'train.html'
        subprocess.run([sys.executable, ROOT / 'scripts/report/report_snapshots.py', snapshot, '--steps', '16', '--rank', '0'], check=True)
        subprocess.run([command, 'report', snapshot, '-o', report], check=True, stderr=subprocess.DEVNULL)
        environment = {**os.environ, 'LD_LIBRARY_PATH': driver, 'LD_PRELOAD': str(built / 'libcachealloc.so'),
                       'CACHEALLOC_CONF': f'record:state,snapshot:{folder}/live.pickle'}
        source = folder / 'train.c'
        source.write_bytes((ROOT / 'scripts/report/picture_train.c').read_bytes())
        subprocess.run(['gcc', '-g', f'-fdebug-prefix-map={folder}=', '-o', 'train', 'train.c', '-ldl'], cwd=folder, check=True)
        program = subprocess.Popen(['./train'], cwd=folder, env=environment)
        try:
            if options.review:
                options.review.mkdir(parents=True, exist_ok=True)
                review(browser, folder, report, snapshot, command, program.pid, options.review)
            else:
                picture_of_report(browser, report, ROOT / 'docs/report.png')
                keys = [('log_metrics', screen.DOWN), ('stack of', b'')]
                # Waits until the bars have a shape.
                picture_of_top(browser, folder, command, ROOT / 'docs/top.png', 21, 104, keys, [program.pid], 60)
        finally:
            program.send_signal(signal.SIGKILL)
            program.wait()
    print(f'pictures: {options.review or ROOT / "docs"}')


if __name__ == '__main__':
    main()
