#!/usr/bin/env python3
"""A sample of mutants of the library, and which of them the tests do not notice.

    scripts/mutants.py core --count 300 --seed 1
    scripts/mutants.py preload --count 60 --seed 1 --seconds 3600
    scripts/mutants.py core --like 'reach.rs.*follow'

cargo-mutants says which mutants there are (cargo install cargo-mutants). They are built all at once, in a copy of the
tree: each function with mutants has their bodies beside its own, and a number in the built file chooses one. So a
mutant costs no build, but for the few that cannot stand beside others: constants, `const fn`, what returns
a type without a name. These are built one by one.

First the tests run without a mutant, and only those that pass take part. Then the mutants in random order, those that are
built alone last, so that a part is a fair sample as well; of the tests the fast ones first. The first that fails ends a
mutant; a test of real processes has to fail twice. Each is printed as it is known, and kept in
target/mutants/PART/results-COMMIT.jsonl: what is there is not tried again, so the tree must be the commit's.
The copy, and what is built in it, stay for the next time. All of it runs with low priority; CARGO is what builds, if it is set.
"""
import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKED = ['--profile', 'checked']
TESTS = [*CHECKED, '-p', 'cachealloc-tests', '--test', 'it']


class Part:
    def __init__(self, package, source, others, builds, patched, threads, skipped, matters):
        self.package, self.source, self.others = package, source, others
        self.builds = builds    # commands of cargo; the last one builds the tests
        self.patched = patched  # the file with the mutants, if it is not the tests themselves
        self.threads = threads  # tests at once
        self.skipped = skipped  # tests to which no mutant can matter
        self.matters = matters  # whether a file can matter to a test


PARTS = {
    'core': Part('cachealloc-core', 'src/core', ['check.rs'],
                 [['test', '--no-run', *CHECKED, '-p', 'cachealloc-core', '--features', 'break-rules']], None, 2, [],
                 # The allocator and the ordering rules know nothing of each other.
                 lambda file, test: file.endswith('/rules.rs') or ('/order/' in file) == test.startswith('order::')),
    'preload': Part('cachealloc-preload', 'src/preload', ['build.rs', 'build/**'],
                    [['build', *CHECKED, '-p', 'simulated-driver', '-p', 'cachealloc-preload', '--features', 'cachealloc-preload/break-rules'],
                     ['build', *CHECKED, '-p', 'cachealloc-cli'], ['build', *CHECKED, '-p', 'cachealloc-tests', '--bins'],
                     ['test', '--no-run', *TESTS]],
                    'checked/libcachealloc.so', 4,
                    ['tidy::', 'layers::', 'documents::', 'shape::', 'package::', 'samples::', 'instructions::', 'storm::'],
                    lambda file, test: True),
}
# In the file that is built, before the number of the mutant that it has.
MAGIC = 0x6d75_7461_6e74_5f23
CHOSEN = f'''
static CHOSEN_MUTANT: [core::sync::atomic::AtomicU64; 2] =
    [core::sync::atomic::AtomicU64::new({MAGIC}), core::sync::atomic::AtomicU64::new(0)];
#[inline(always)]
fn chosen_mutant() -> u64 {{
    core::hint::black_box(&CHOSEN_MUTANT)[1].load(core::sync::atomic::Ordering::Relaxed)
}}
'''
# A mutant that allocates without end must not take the machine with it.
DATA_BYTES_MAX = 6 << 30
# Tests are taken together up to so many seconds each, the fast ones first.
STEPS_S = [0.1, 0.5, 2, 8, 30, 1 << 20]


class Mutant:
    def __init__(self, number, listed):
        self.number, self.name, self.file = number, listed['name'], listed['file']
        original = (ROOT / self.file).read_text()
        self.text = applied(original, listed['diff'])
        self.body = self.begin = self.end = None
        if not listed['function']:
            return
        # The body in the original, and what stands there in the mutant.
        span = listed['function']['span']
        lines = original.splitlines(keepends=True)
        place = lambda at: sum(map(len, lines[:at['line'] - 1])) + at['column'] - 1
        begin, self.end = place(span['start']), place(span['end'])
        head = re.sub(r'//[^\n]*|"(?:\\.|[^"\\])*"', lambda it: ' ' * len(it[0]), original[begin:self.end])
        self.begin = begin + head.index('{', head.index('fn '))
        if not re.search(r'\bconst\s+(unsafe\s+)?fn\b|->\s*impl\b', head[:self.begin - begin]):
            self.body = self.text[self.begin:len(self.text) - (len(original) - self.end)]


def applied(text, diff):
    """`text` with the one hunk of a unified diff."""
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
    """`text` with all of `mutants` in it, and the lines of each."""
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
    """The copy in which mutants are built."""

    def __init__(self, part, folder):
        self.part, self.root, self.target = part, folder / 'tree', folder / 'target'
        names = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = [it for it in names.split('\0') if it and (ROOT / it).is_file()]
        for name in names:
            self.write(name, (ROOT / name).read_bytes())
        self.files = {it: (ROOT / it).read_bytes() for it in names if it.startswith(part.source) and it.endswith('.rs')}
        if not self.target.exists() and (ROOT / 'target/checked').exists():
            # What others wrote need not be built again.
            shutil.copytree(ROOT / 'target/checked', self.target / 'checked', symlinks=True, ignore=shutil.ignore_patterns('incremental'))

    def write(self, name, data):
        path = self.root / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            shutil.copymode(ROOT / name, path)

    def with_texts(self, texts):
        """Writes these files changed, and all others of the part as they are."""
        for name, data in self.files.items():
            self.write(name, texts[name].encode() if name in texts else data)

    def build(self):
        """The tests, or the errors of the compiler."""
        tests, errors = [], []
        for command in self.part.builds:
            command = [os.environ.get('CARGO', 'cargo'), *command, '-j', '1', '--message-format', 'json', '-q']
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

    def choose(self, number, tests):
        for path in [self.target / self.part.patched] if self.part.patched else [it for it, _ in tests]:
            data = path.read_bytes()
            at = data.index(MAGIC.to_bytes(8, 'little')) + 8
            # A new file: the old one may still be run.
            new = path.with_suffix('.new')
            new.write_bytes(data[:at] + number.to_bytes(8, 'little') + data[at + 8:])
            shutil.copymode(path, new)
            new.replace(path)


def build_together(tree, mutants):
    """Builds as many of `mutants` at once as can be; those that must be built alone, and the tests."""
    alone = [it for it in mutants if it.body is None]
    # A function inside another one.
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


class Tests:
    """The tests of one build, in the order in which they run."""

    def __init__(self, part):
        self.part = part
        self.times = {}

    def measure(self, tests):
        """Runs all of them without a mutant."""
        for exe, folder in tests:
            words = [word for it in self.part.skipped for word in ('--skip', it)]
            command = [str(exe), '--test-threads', str(self.part.threads), '-Zunstable-options', '--report-time', *words]
            for line in run(command, folder, 7200)[1]:
                if found := re.search(r'^test (\S+).* ok <([0-9.]+)s>$', line):
                    self.times[f'{key(exe)} {found[1]}'] = float(found[2])
                elif re.match(r'^test .* FAILED <', line):
                    print(f'does not take part: {line}', flush=True)

    def catch(self, tests, file):
        """What notices the mutant of this file that is in place."""
        before_s = -1
        for step_s in STEPS_S:
            names = [it for it, taken in self.times.items() if before_s < taken <= step_s and self.part.matters(file, it.split()[1])]
            before_s = step_s
            for exe, folder in tests:
                here = [it for it in names if it.split()[0] == key(exe)]
                while here and (seen := self.failing(exe, folder, here)):
                    again = f'{key(exe)} {seen}'
                    # Real processes may be late on a busy machine.
                    if not self.part.patched or again not in here or self.failing(exe, folder, [again]):
                        return seen
                    here.remove(again)
        return None

    def failing(self, exe, folder, names):
        expected_s = sum(self.times[name] for name in names)
        command = [str(exe), '--test-threads', str(self.part.threads), '--exact', *(name.split()[1] for name in names)]
        code, lines = run(command, folder, 60 + 10 * expected_s, None if self.part.patched else 5 + 10 * expected_s, True)
        failed = [line for line in lines if re.match(r'test .*FAILED$', line)]
        if failed:
            return failed[0].split()[1]
        return f'one of {len(names)} tests, by its end or by none' if code != 0 else None


def key(exe):
    return exe.stem.rsplit('-', 1)[0]


def run(command, folder, seconds_max, cpu_s_max=None, first_ends=False):
    """The exit code, and the lines of what it prints."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cpu_s_max:
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s_max) + 1,) * 2)
            resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX,) * 2)

    # Every tool that is missing here is one for all mutants. Times are told by unstable options only.
    environment = {**os.environ, 'CI': '', 'RUSTC_BOOTSTRAP': '1'}
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors='replace',
                             start_new_session=True, preexec_fn=limit, env=environment)
    stop = lambda: os.killpg(child.pid, signal.SIGKILL)
    clock = threading.Timer(seconds_max, stop)
    clock.start()
    lines = []
    for line in child.stdout:
        lines.append(line.rstrip('\n'))
        if first_ends and re.match(r'test .*FAILED$', lines[-1]):
            stop()
            break
    code = child.wait()
    clock.cancel()
    return code, lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('part', choices=PARTS)
    parser.add_argument('--count', type=int, default=20)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--like', metavar='REGEX', help='all mutants whose name this finds, in place of a sample')
    parser.add_argument('--seconds', type=int, default=1 << 30, help='no further mutant is begun after so long')
    parser.add_argument('--fast', type=float, default=1 << 20, metavar='SECONDS', help='only tests that take no longer')
    options = parser.parse_args()
    os.nice(15)
    begun = time.monotonic()
    part = PARTS[options.part]
    command = ['cargo-mutants', 'mutants', '--list', '--json', '--diff', '-p', part.package, '--file', f'{part.source}/**']
    command += [word for it in part.others for word in ('--exclude', f'{part.source}/{it}')]
    listed = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    if options.like:
        listed = [it for it in listed if re.search(options.like, it['name'])]
        options.count = len(listed)
    listed.sort(key=lambda it: it['name'])
    chosen = [Mutant(number + 1, it) for number, it in enumerate(random.Random(options.seed).sample(listed, options.count))]

    folder = (ROOT / 'target/mutants').resolve() / options.part
    tree = Tree(part, folder)
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    kept = folder / f'results-{commit}.jsonl'
    known = {it['name']: it for it in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}

    def tell(mutant, how, by, taken_s):
        known[mutant.name] = {'name': mutant.name, 'how': how, 'by': by, 'seconds': round(taken_s, 1)}
        with kept.open('a') as file:
            print(json.dumps(known[mutant.name]), file=file)
        print(f'{how} ({taken_s:.1f} s{", " + by if by else ""}): {mutant.name}', flush=True)

    judge = Tests(part)
    alone, tests = build_together(tree, chosen)
    print(f'{len(chosen)} of {len(listed)} mutants, {len(alone)} of them to be built alone; {time.monotonic() - begun:.0f} s', flush=True)
    times = folder / f'times-{commit}.json'
    if times.exists():
        known_times = json.loads(times.read_text())
        judge.times = {it: taken for it, taken in known_times.items() if not any(word in it for word in part.skipped)}
    else:
        judge.measure(tests)
        times.write_text(json.dumps(judge.times))
    print(f'{len(judge.times)} tests take part; {time.monotonic() - begun:.0f} s', flush=True)
    judge.times = {it: taken for it, taken in judge.times.items() if taken <= options.fast}
    for mutant in sorted(chosen, key=lambda it: it in alone):
        if mutant.name in known:
            continue
        if time.monotonic() - begun > options.seconds:
            break
        before = time.monotonic()
        if mutant in alone:
            tree.with_texts({mutant.file: mutant.text})
            tests, _ = tree.build()
            if not tests:
                tell(mutant, 'does not compile', '', time.monotonic() - before)
                continue
        else:
            tree.choose(mutant.number, tests)
        seen = judge.catch(tests, mutant.file)
        tell(mutant, 'caught' if seen else 'survives', seen, time.monotonic() - before)

    tried = [known[it.name]['how'] for it in chosen if it.name in known]
    caught, survive = tried.count('caught'), tried.count('survives')
    print(f'{caught} of {caught + survive} caught ({100 * caught / max(caught + survive, 1):.1f} %); '
          f'{tried.count("does not compile")} more do not compile, {len(chosen) - len(tried)} were not tried')
    for it in chosen:
        if known.get(it.name, {}).get('how') == 'survives':
            print(f'survives: {it.name}')


if __name__ == '__main__':
    main()
