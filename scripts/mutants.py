#!/usr/bin/env python3
"""Builds a sample of mutants of the library, and finds those that the tests do not detect.

    scripts/mutants.py build core --count 300 --seed 2 --out core.tar.xz
    scripts/mutants.py build preload --like 'reach.rs.*follow' --out some.tar.xz
    scripts/mutants.py try core.tar.xz --jobs 16 --seconds 560 --out result.json
    scripts/mutants.py try core.tar.xz --from result.json --out result.json

`build` gets the list of mutants from cargo-mutants (cargo install cargo-mutants). It builds all of them at once, in a copy of
the tree: each function with mutants contains their bodies beside its own, and a number in the built file selects one. So a
mutant costs no build, except for the few that cannot share a build: constants, `const fn`, and functions that return an
unnamed type. These are built one by one. The files that the tests need are packed. CARGO names another cargo.

`try` needs that file and Python, and for the preloaded part gcc, so it may run on a machine with many processors. Tests contain
the path of their tree, so both commands work in /tmp/cachealloc-mutants. First each test runs without a mutant, and only those
that pass are used. Then all mutants run the fast tests, and the undetected ones slower tests. The first test that fails or hangs
detects a mutant; a test of real processes must fail twice, and pass without the mutant. If the time is over, the result
contains the progress, and a run with --from continues from there.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = pathlib.Path('/tmp/cachealloc-mutants')
CHECKED = ['--profile', 'checked']
TESTS = [*CHECKED, '-p', 'cachealloc-tests', '--test', 'it']


class Part:
    def __init__(self, package, source, others, builds, library, skipped, matters):
        self.package, self.source, self.others = package, source, others
        self.builds = builds    # commands of cargo; the last one builds the tests
        self.library = library  # the file with the mutants, if the tests are real processes and do not contain them
        self.skipped = skipped  # tests that no mutant can affect
        self.matters = matters  # whether a file can affect a test


PARTS = {
    'core': Part('cachealloc-core', 'src/core', ['check.rs'],
                 [['test', '--no-run', *CHECKED, '-p', 'cachealloc-core', '--features', 'break-rules']], None, [],
                 # The allocator and the ordering rules do not depend on each other.
                 lambda file, test: '/rules/' in file or ('/order/' in file) == test.startswith('order::')),
    'preload': Part('cachealloc-preload', 'src/preload', ['build.rs', 'build/**'],
                    [['build', *CHECKED, '-p', 'simulated-driver', '-p', 'cachealloc-preload', '--features', 'cachealloc-preload/break-rules'],
                     ['build', *CHECKED, '-p', 'cachealloc-cli'], ['build', *CHECKED, '-p', 'cachealloc-tests', '--bins'],
                     ['test', '--no-run', *TESTS]],
                    'checked/libcachealloc.so',
                    ['tidy::', 'layers::', 'documents::', 'shape::', 'package::', 'samples::', 'instructions::', 'storm::', 'natively_clean'],
                    lambda file, test: True),
}
# Precedes the number of the chosen mutant in the built file.
MAGIC = b'#_tnatum'
CHOSEN = f'''
static CHOSEN_MUTANT: [core::sync::atomic::AtomicU64; 2] =
    [core::sync::atomic::AtomicU64::new({int.from_bytes(MAGIC, 'little')}), core::sync::atomic::AtomicU64::new(0)];
#[inline(always)]
fn chosen_mutant() -> u64 {{
    core::hint::black_box(&CHOSEN_MUTANT)[1].load(core::sync::atomic::Ordering::Relaxed)
}}
'''
# A mutant that allocates endlessly must not exhaust the machine.
DATA_KB_MAX = 6 << 20
# A group of tests takes up to this many seconds, the first groups up to one second.
TOGETHER_S_MAX = 20
# Processes of the library find each other in /dev/shm; they must not find those of other jobs.
APART = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs none /dev/shm && exec "$@"', 'sh']


class Mutant:
    def __init__(self, number, listed):
        self.number, self.name, self.file = number, listed['name'], listed['file']
        original = (ROOT / self.file).read_text()
        self.text = applied(original, listed['diff'])
        self.body = self.begin = self.end = None
        if not listed['function']:
            return
        # The body in the original and in the mutant.
        span = listed['function']['span']
        lines = original.splitlines(keepends=True)
        place = lambda at: sum(map(len, lines[:at['line'] - 1])) + at['column'] - 1
        begin, self.end = place(span['start']), place(span['end'])
        head = re.sub(r'//[^\n]*|"(?:\\.|[^"\\])*"', lambda it: ' ' * len(it[0]), original[begin:self.end])
        self.begin = begin + head.index('{', head.index('fn '))
        if not re.search(r'\bconst\s+(unsafe\s+)?fn\b|->\s*impl\b', head[:self.begin - begin]):
            self.body = self.text[self.begin:len(self.text) - (len(original) - self.end)]


def applied(text, diff):
    """Applies the one hunk of a unified diff to `text`."""
    lines, out, at = text.splitlines(keepends=True), [], 0
    for line in diff.splitlines(keepends=True)[2:]:
        if head := re.match(r'@@ -(\d+)', line):
            out, at = lines[:int(head[1]) - 1], int(head[1]) - 1
        elif line[0] == '+':
            out.append(line[1:])
        elif line[0] in ' -':
            out += [lines[at]] if line[0] == ' ' else []
            at += 1
    return ''.join(out + lines[at:])


def together(text, mutants):
    """Returns `text` with all of `mutants` in it, and the lines of each."""
    out, done, lines = '', 0, {}
    for begin in sorted({it.begin for it in mutants}):
        inside = [it for it in mutants if it.begin == begin]
        out += text[done:begin] + '{ match crate::chosen_mutant() {\n'
        for it in inside:
            first = out.count('\n') + 1
            out += f'{it.number} => {it.body}\n'
            lines[it] = (first, out.count('\n'))
        done = inside[0].end
        out += f'_ => {text[begin:done]}\n}} }}'
    return out + text[done:], lines


class Tree:
    """The copy of the tree in which mutants are built."""

    def __init__(self, part, place):
        self.part, self.root, self.target = part, place / 'tree', place / 'target'
        names = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        self.names = [it for it in names.split('\0') if it and (ROOT / it).is_file()]
        for name in self.names:
            self.write(name, (ROOT / name).read_bytes())
        self.files = {it: (ROOT / it).read_bytes() for it in self.names if it.startswith(part.source) and it.endswith('.rs')}
        if not self.target.exists() and (ROOT / 'target/checked').exists():
            # Dependencies need not be built again.
            shutil.copytree(ROOT / 'target/checked', self.target / 'checked', symlinks=True, ignore=shutil.ignore_patterns('incremental'))

    def write(self, name, data):
        path = self.root / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            shutil.copymode(ROOT / name, path)

    def with_texts(self, texts):
        """Writes these files changed, and all others of the part unchanged."""
        for name, data in self.files.items():
            self.write(name, texts[name].encode() if name in texts else data)

    def build(self):
        """Returns the tests as executables with their folders, or the errors of the compiler."""
        tests, errors = [], []
        for command in self.part.builds:
            command = [os.environ.get('CARGO', 'cargo'), *command, '--message-format', 'json', '-q']
            built = subprocess.run(command, cwd=self.root, capture_output=True, text=True,
                                   env={**os.environ, 'CARGO_TARGET_DIR': str(self.target)})
            for line in built.stdout.splitlines():
                message = json.loads(line) if line.startswith('{') else {}
                if message.get('reason') == 'compiler-message' and message['message']['level'] == 'error':
                    errors.append(message['message'])
                if message.get('executable') and message['profile']['test']:
                    tests.append((pathlib.Path(message['executable']), pathlib.Path(message['manifest_path']).parent))
            if built.returncode != 0:
                if not errors:
                    sys.exit(built.stderr)
                return None, errors
        return tests, []

    def with_mutants(self, tests):
        """Returns the built files that contain mutants."""
        return [self.target / self.part.library] if self.part.library else [it for it, _ in tests]


def build_together(tree, mutants):
    """Builds as many of `mutants` at once as possible. Returns those that must be built alone, and the tests."""
    alone = [it for it in mutants if it.body is None]
    # A function inside another one must be built alone.
    spans = {(it.file, it.begin, it.end) for it in mutants if it.body is not None}
    alone += [it for it in mutants if it.body is not None
              and any(file == it.file and begin < it.begin < end for file, begin, end in spans)]
    while True:
        texts, lines = {}, {}
        chosen = [it for it in mutants if it not in alone]
        for file in {it.file for it in chosen} | {f'{tree.part.source}/lib.rs'}:
            texts[file], places = together((ROOT / file).read_text(), [it for it in chosen if it.file == file])
            lines |= places
        texts[f'{tree.part.source}/lib.rs'] += CHOSEN
        tree.with_texts(texts)
        tests, errors = tree.build()
        if tests:
            return alone, tests
        wrong = set()
        for span in (span for error in errors for span in error['spans']):
            at = [(it, first, last) for it, (first, last) in lines.items() if it.file == span['file_name']]
            wrong |= {it for it, first, last in at if first <= span['line_start'] <= last}
        if not wrong:
            sys.exit('\n'.join(error['rendered'] for error in errors))
        alone += wrong


def build(options):
    part, place = PARTS[options.part], PLACE / options.part
    command = ['cargo-mutants', 'mutants', '--list', '--json', '--diff', '-p', part.package, '--file', f'{part.source}/**']
    command += [word for it in part.others for word in ('--exclude', f'{part.source}/{it}')]
    listed = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    commit = subprocess.run(['git', 'describe', '--always', '--dirty'], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    plan = {'part': options.part, 'sample': f'seed {options.seed} at {commit}, of {len(listed)}', 'mutants': []}
    if options.like:
        listed = [it for it in listed if re.search(options.like, it['name'])]
    listed.sort(key=lambda it: it['name'])
    chosen = random.Random(options.seed).sample(listed, len(listed) if options.like else options.count)
    chosen = [Mutant(number + 1, it) for number, it in enumerate(chosen)]

    tree = Tree(part, place)
    alone, tests = build_together(tree, chosen)
    print(f'{len(chosen)} mutants, {len(alone)} of them to be built alone', flush=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        packed = pathlib.Path(folder)

        def pack(paths, below):
            for path in paths:
                out = packed / below / path.relative_to(tree.target)
                out.parent.mkdir(parents=True, exist_ok=True)
                # Tests query the names of functions.
                subprocess.run(['strip', '--strip-debug', '-o', str(out), str(path)], check=True)

        programs = [it for it in (tree.target / 'checked').iterdir() if it.is_file() and os.access(it, os.X_OK)] if part.library else []
        pack([*(it for it, _ in tests), *programs], 'target')
        plan['tests'] = [{'name': it.stem.rsplit('-', 1)[0], 'file': str(it.relative_to(tree.target)), 'folder': str(folder)}
                         for it, folder in tests]
        for mutant in sorted(chosen, key=lambda it: it in alone):
            how = 'together'
            if mutant in alone:
                tree.with_texts({mutant.file: mutant.text})
                built, _ = tree.build()
                how = 'alone' if built else 'does not compile'
                pack(tree.with_mutants(built) if built else [], f'alone/{mutant.number}')
                print(f'{how}: {mutant.name}', flush=True)
            plan['mutants'].append({'number': mutant.number, 'name': mutant.name, 'file': mutant.file, 'built': how})
        tree.with_texts({})
        (packed / 'plan.json').write_text(json.dumps(plan))
        with tarfile.open(options.out, 'w:xz', preset=9) as file:
            file.add(packed, f'{options.part}/packed')
            for name in tree.names:
                file.add(tree.root / name, f'{options.part}/packed/tree/{name}')


class Late(Exception):
    """The time limit for all jobs has passed."""


class Job:
    """A folder in which mutants are tried one after the other."""

    def __init__(self, plan, number, deadline):
        self.part, self.tests, self.deadline = PARTS[plan['part']], {it['name']: it for it in plan['tests']}, deadline
        self.packed, self.target = PLACE / plan['part'] / 'packed', PLACE / plan['part'] / f'job-{number}'
        self.apart = APART if self.part.library and subprocess.run([*APART, 'true'], stderr=subprocess.DEVNULL).returncode == 0 else []
        shutil.rmtree(self.target, ignore_errors=True)
        shutil.copytree(self.packed / 'target', self.target, copy_function=os.link)

    def choose(self, mutant):
        """Selects the mutant in the built files, or no mutant for None."""
        folder = self.packed / (f'alone/{mutant["number"]}' if mutant and mutant['built'] == 'alone' else 'target')
        number = MAGIC + (mutant['number'] if mutant else 0).to_bytes(8, 'little')
        for name in [self.part.library] if self.part.library else [it['file'] for it in self.tests.values()]:
            data = re.sub(re.escape(MAGIC) + b'.{8}', lambda _: number, (folder / name).read_bytes(), flags=re.DOTALL)
            # A new file, because the old one may still be running, or be shared with another job.
            (self.target / name).unlink()
            (self.target / name).write_bytes(data)
            (self.target / name).chmod(0o755)

    def failing(self, names, expected_s):
        """Returns the first of these tests of one executable that fails."""
        test = self.tests[names[0].split()[0]]
        limits = '' if self.part.library else f'ulimit -t {int(10 + 10 * expected_s)} -d {DATA_KB_MAX}; '
        arguments = ['--test-threads', '1', '--exact', *(it.split()[1] for it in names)]
        command = [*self.apart, 'bash', '-c', f'ulimit -c 0; {limits}exec "$@"', 'bash', str(self.target / test['file']), *arguments]
        seconds = min(60 + 10 * expected_s, self.deadline - time.monotonic())
        if seconds <= 0:
            raise Late
        # A tool that is missing here is missing for all mutants.
        child = subprocess.Popen(command, cwd=test['folder'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                 errors='replace', start_new_session=True, env={**os.environ, 'CI': ''})
        stop = lambda: os.killpg(child.pid, signal.SIGKILL)
        clock = threading.Timer(seconds, stop)
        clock.start()
        failed = None
        for line in child.stdout:
            if found := re.match(r'test (\S+) .*FAILED$', line):
                failed = f'{test["name"]} {found[1]}'
                stop()
                break
        code = child.wait()
        clock.cancel()
        if not failed and time.monotonic() >= self.deadline:
            raise Late
        return failed or (f'{test["name"]} by its end or by none, of {len(names)}' if code != 0 else None)

    def measure(self, name):
        """Returns the duration of the test, or None if it fails."""
        begun = time.monotonic()
        return None if self.failing([name], 60) else round(time.monotonic() - begun, 3)

    def seen(self, mutant, names, times):
        """Returns the test that detects the mutant."""
        self.choose(mutant)
        for test in self.tests:
            here = [it for it in names if it.split()[0] == test]
            while here and (failed := self.failing(here, sum(times[it] for it in here))):
                if not self.part.library or failed not in here or self.is_seen_by(mutant, failed, times[failed]):
                    return failed
                here.remove(failed)
        return None

    def is_seen_by(self, mutant, name, expected_s):
        """Confirms a failure on a busy machine: the test must fail again, and pass without the mutant."""
        if not self.failing([name], expected_s):
            return False
        self.choose(None)
        without = self.failing([name], expected_s)
        self.choose(mutant)
        return not without


def groups_of(times):
    """Returns the tests in groups, the fast ones first."""
    groups, most_s = [[]], 1
    for name in sorted(times, key=lambda it: (times[it], it)):
        if groups[-1] and sum(times[it] for it in groups[-1]) + times[name] > most_s:
            groups.append([])
            most_s = min(2 * most_s, TOGETHER_S_MAX)
        groups[-1].append(name)
    return groups


def attempt(options):
    begun = time.monotonic()
    with tarfile.open(options.file) as file:
        place = PLACE / file.next().name.split('/')[0]
        shutil.rmtree(place / 'packed', ignore_errors=True)
        file.extractall(PLACE)
    plan = json.loads((place / 'packed/plan.json').read_text())
    for name in 'tree', 'target':
        if not (place / name).exists():
            (place / name).symlink_to(place / 'packed' / name)
    result = json.loads(options.known.read_text()) if options.known else {'sample': plan['sample'], 'times': {}, 'mutants': {}}
    if result['sample'] != plan['sample']:
        sys.exit(f'that is of {result["sample"]}, and this of {plan["sample"]}')

    idle, lock, jobs = queue.Queue(), threading.Lock(), concurrent.futures.ThreadPoolExecutor(options.jobs)
    for number in range(options.jobs):
        idle.put(Job(plan, number, begun + options.seconds))

    def keep():
        options.out.write_text(json.dumps(result, indent=1))

    def each(work, items):
        """Tries all mutants, one per job at a time."""
        def one(item):
            job = idle.get()
            try:
                if time.monotonic() < job.deadline:
                    work(job, *item)
            except Late:
                pass
            finally:
                idle.put(job)

        list(jobs.map(one, items))

    def measure(job, name):
        taken = job.measure(name)
        with lock:
            result['times'][name] = taken
            keep()

    part, names = PARTS[plan['part']], []
    for test in plan['tests']:
        listed = subprocess.run([place / 'packed/target' / test['file'], '--list'], check=True, capture_output=True, text=True).stdout
        listed = [it for it in re.findall(r'^(\S+): test$', listed, re.MULTILINE) if not any(word in it for word in part.skipped)]
        names += [f'{test["name"]} {it}' for it in listed]
    each(measure, [[it] for it in names if it not in result['times']])
    times = {name: result['times'][name] for name in names if result['times'].get(name)}
    for name in names:
        if name in result['times'] and name not in times:
            print(f'takes no part: {name}')
    print(f'{len(times)} of {len(names)} tests take part, {sum(times.values()):.0f} s; {time.monotonic() - begun:.0f} s', flush=True)

    groups = groups_of(times)

    def judge(job, number, mutant):
        known = result['mutants'][mutant['name']]
        if known['how'] != 'not reached' or number in known['passed']:
            return
        before = time.monotonic()
        seen = job.seen(mutant, [it for it in groups[number] if part.matters(mutant['file'], it.split()[1])], times)
        with lock:
            known['seconds'] = round(known['seconds'] + time.monotonic() - before, 1)
            known['passed'] += [] if seen else [number]
            if seen:
                known |= {'how': 'caught', 'by': seen}
            elif len(known['passed']) == len(groups) and known['how'] == 'not reached':
                known['how'] = 'survives'
            keep()
        if known['how'] != 'not reached':
            print(f'{known["how"]} ({known["seconds"]} s, {known.get("by")}): {mutant["name"]}', flush=True)

    compiled = [it for it in plan['mutants'] if it['built'] != 'does not compile']
    for mutant in compiled:
        result['mutants'].setdefault(mutant['name'], {'how': 'not reached', 'passed': [], 'seconds': 0})
    if names and all(it in result['times'] for it in names):
        each(judge, [(number, mutant) for number in range(len(groups)) for mutant in compiled])
    keep()
    hows = [result['mutants'][it['name']]['how'] for it in compiled]
    caught, survive = hows.count('caught'), hows.count('survives')
    print(f'{plan["part"]}, {plan["sample"]}: {caught} caught, {survive} survive ({100 * caught / max(caught + survive, 1):.1f} %), '
          f'{hows.count("not reached")} not tried to the end; {len(plan["mutants"]) - len(compiled)} more do not compile')
    for it, how in zip(compiled, hows):
        if how != 'caught':
            print(f'{how}, {len(result["mutants"][it["name"]]["passed"])} of {len(groups)} groups of tests: {it["name"]}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser('build')
    one.set_defaults(run=build)
    one.add_argument('part', choices=PARTS)
    one.add_argument('--count', type=int, default=20)
    one.add_argument('--seed', type=int, default=1)
    one.add_argument('--like', metavar='REGEX', help='all mutants whose name this finds, in place of a sample')
    one.add_argument('--out', type=pathlib.Path, required=True)
    one = commands.add_parser('try')
    one.set_defaults(run=attempt)
    one.add_argument('file', type=pathlib.Path)
    one.add_argument('--jobs', type=int, default=os.cpu_count())
    one.add_argument('--seconds', type=int, default=1 << 30, help='when all stops')
    one.add_argument('--from', dest='known', type=pathlib.Path, metavar='RESULT', help='an earlier result of the same file')
    one.add_argument('--out', type=pathlib.Path, required=True)
    options = parser.parse_args()
    os.nice(15)
    options.run(options)


if __name__ == '__main__':
    main()
