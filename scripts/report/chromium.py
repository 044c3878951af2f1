"""Headless Chromium over its debugging pipe: nothing but Python's standard library and the browser itself.

Used by test.py and pictures.py. No port is opened, and the browser may load local files only: every
request for anything else is recorded in `requests` (and fails, for lack of a resolver).
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']


def find():
    """The browser's path, or None."""
    return os.environ.get('CHROMIUM') or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, path, deadline_s=60):
        self.profile = tempfile.TemporaryDirectory(prefix='cachealloc-report-')
        self.deadline_s = deadline_s
        # On a busy or just started machine, a browser sometimes crashes before its first answer. That is not an error.
        for more in (2, 1, 0):
            try:
                self.start(path)
                break
            except (OSError, TimeoutError) as error:
                self.stop()
                if not more:
                    raise
                print(f'chromium: begun anew: {error}', file=sys.stderr)

    def start(self, path):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def pipes():
            # The browser reads commands from 3 and writes answers to 4; the pipes may have these numbers already.
            incoming, outgoing = os.dup(theirs_in), os.dup(theirs_out)
            high = [os.dup2(incoming, 100), os.dup2(outgoing, 101)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [path, '--headless=new', '--remote-debugging-pipe', '--no-sandbox', '--disable-gpu', '--no-first-run',
             '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
             '--hide-scrollbars', '--host-resolver-rules=MAP * ~NOTFOUND', f'--user-data-dir={self.profile.name}',
             'about:blank'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=pipes)
        os.close(theirs_in)
        os.close(theirs_out)
        self.input, self.output = ours_in, ours_out
        self.pending, self.answers, self.number = b'', {}, 0
        self.console, self.requests = [], []
        self.session = None
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ['Page', 'Runtime', 'Network', 'Log']:
            self.call(f'{domain}.enable')

    def page_mib(self):
        """The most memory that the process of a page has held so far."""
        session, self.session = self.session, None
        processes = self.call('SystemInfo.getProcessInfo')['processInfo']
        self.session = session

        def held(process):
            lines = pathlib.Path(f'/proc/{process["id"]}/status').read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith('VmHWM:'))

        return max(held(process) for process in processes if process['type'] == 'renderer') // 1024

    def stop(self):
        self.process.kill()
        self.process.wait()
        os.close(self.input)
        os.close(self.output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call('Browser.close')
        except (OSError, TimeoutError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        self.stop()
        try:
            self.profile.cleanup()
        except OSError:
            pass  # a late child of the browser still writes there

    def call(self, method, **params):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        os.write(self.output, json.dumps(message).encode() + b'\0')
        deadline = time.monotonic() + self.deadline_s
        while self.number not in self.answers:
            self.read(deadline, method)
        answer = self.answers.pop(self.number)
        if 'error' in answer:
            raise RuntimeError(f'{method}: {answer["error"]}')
        return answer['result']

    def read(self, deadline, what):
        ready, _, _ = select.select([self.input], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f'{what}: no answer from the browser in {self.deadline_s} s')
        piece = os.read(self.input, 1 << 20)
        if not piece:
            raise OSError('the browser is gone')
        *messages, self.pending = (self.pending + piece).split(b'\0')
        for message in map(json.loads, messages):
            if 'id' in message:
                self.answers[message['id']] = message
            else:
                self.note(message['method'], message['params'])

    def note(self, method, params):
        if method == 'Runtime.consoleAPICalled' and params['type'] in ('error', 'warning', 'assert'):
            self.console.append(' '.join(str(each.get('value', each.get('description'))) for each in params['args']))
        elif method == 'Runtime.exceptionThrown':
            details = params['exceptionDetails']
            self.console.append(details.get('exception', {}).get('description') or details['text'])
        elif method == 'Log.entryAdded' and params['entry']['level'] in ('error', 'warning'):
            self.console.append(params['entry']['text'])
        elif method == 'Network.requestWillBeSent':
            self.requests.append(params['request']['url'])

    def size(self, width, height, scale=1):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def scheme(self, name):
        self.call('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': name}])

    def open(self, path):
        self.console.clear()
        self.requests.clear()
        self.call('Page.navigate', url=pathlib.Path(path).resolve().as_uri())

    def run(self, script):
        """Returns the value of a script in the page, and awaits a promise."""
        answer = self.call('Runtime.evaluate', expression=script, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in answer:
            raise RuntimeError(answer['exceptionDetails'].get('exception', {}).get('description', script))
        return answer['result'].get('value')

    def until(self, script, what):
        deadline = time.monotonic() + self.deadline_s
        while not self.run(script):
            if time.monotonic() > deadline:
                raise TimeoutError(f'{what}; the console says: {self.console}')
            time.sleep(0.02)

    def mouse(self, kind, x, y, **more):
        self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse('mousePressed', x, y, button='left', clickCount=1)
        self.mouse('mouseReleased', x, y, button='left', clickCount=1)

    def drag(self, begin, end):
        self.mouse('mousePressed', *begin, button='left', clickCount=1)
        for share in (0.25, 0.5, 0.75, 1):
            self.mouse('mouseMoved', *(a + (b - a) * share for a, b in zip(begin, end)), button='left', buttons=1)
        self.mouse('mouseReleased', *end, button='left', clickCount=1)

    def key(self, key):
        # Without these codes, the browser does not perform the key's default action: move the focus, press a button.
        code = {'windowsVirtualKeyCode': {'Tab': 9, 'Enter': 13}[key]} if key in ('Tab', 'Enter') else {}
        letter = '\r' if key == 'Enter' else key if len(key) == 1 else None
        for kind in ('keyDown', 'keyUp'):
            text = {'text': letter} if kind == 'keyDown' and letter else {}
            self.call('Input.dispatchKeyEvent', type=kind, key=key, **code, **text)

    def picture(self, path, **more):
        made = self.call('Page.captureScreenshot', format='png', **more)
        pathlib.Path(path).write_bytes(base64.b64decode(made['data']))
