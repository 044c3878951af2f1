"""A report that is open in a browser, with the queries of test.py."""
import json
import pathlib

READY = "document.documentElement?.dataset.ready === 'yes' || document.getElementById('state')?.dataset.wrong"
wrong = []


def check(condition, what):
    if not condition:
        wrong.append(what)
        print(f'report-test: WRONG: {what}')


class Page:
    """An open report, with the queries of the tests."""

    def __init__(self, browser, path, name):
        self.browser, self.name = browser, name
        browser.open(path)
        browser.until(READY, f'{name} does not get ready')
        self.url = pathlib.Path(path).resolve().as_uri()

    def anew(self):
        """Opens the current address again, like a reader who has received it."""
        self.run("document.documentElement.dataset.ready = 'no'")
        self.run('location.reload()')
        self.browser.until(READY, f'{self.name} does not get ready again')

    def check(self, condition, what):
        check(condition, f'{self.name}: {what}')

    def run(self, script):
        return self.browser.run(script)

    def text(self, selector):
        return self.run(f'document.querySelector({json.dumps(selector)})?.textContent ?? ""')

    def box(self, selector):
        """Returns the position in the window, after scrolling into view."""
        return self.run(f'''(() => {{
            const one = document.querySelector({json.dumps(selector)});
            one.scrollIntoView({{block: 'center'}});
            const box = one.getBoundingClientRect();
            return {{x: box.x, y: box.y, width: box.width, height: box.height}};
        }})()''')

    def frame(self):
        """Waits until pending drawing is done."""
        self.run('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')

    def painted(self, selector):
        """Number of different colours on a canvas."""
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
        """Checks at the end that no errors occurred, and that only the file was loaded."""
        self.check(self.browser.console == [], f'the console says {self.browser.console}')
        others = [url for url in self.browser.requests if url != self.url]
        self.check(others == [], f'it asks for {others}')
        self.check(self.text('#state') == '', self.text('#state'))
