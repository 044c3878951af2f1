#!/usr/bin/env python3
"""A sample of mutants of the library, and which of them the tests do not notice.

    scripts/mutants.py core --count 300 --seed 1
    scripts/mutants.py preload --count 60 --seed 1
    scripts/mutants.py core --like 'reach.rs.*follow'

cargo-mutants makes them (cargo install cargo-mutants), one after the other in a copy of the tree with its own target
folder. Those of the core are judged by `cargo test -p cachealloc-core`, with the feature break-rules and without it; those
of the preloaded part by the black-box tests, for which `make test` has to have built everything once. The first
test that fails ends a mutant. Prints the counts and each survivor; all else is under target/mutants.

All of it runs with low priority and one job. CARGO is what builds, if it is set.
"""
import argparse
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The folders of a part; what only judges in tests is left out.
PARTS = {
    'core': ('cachealloc-core', ['src/core/**'], ['src/core/check.rs']),
    'preload': ('cachealloc-preload', ['src/preload/**'], ['src/preload/build.rs', 'src/preload/build/**']),
}
CHECKED = ['--profile', 'checked']
BREAK_RULES = ['--features', 'break-rules']
CORE = [*CHECKED, '-p', 'cachealloc-core']
TESTS = [*CHECKED, '-p', 'cachealloc-tests']
# Where most of what the preloaded part can do wrong is seen first.
FIRST = ['hazards::ordered', 'hazards::expandable', 'graphs::', 'limits::', 'idle::', 'statistics::', 'snapshots::', 'ipc::']
# What each part does to build a mutant, and to test it.
BUILD = {
    'core': [['test', '--no-run', *CORE, *BREAK_RULES]],
    'preload': [
        ['build', *CHECKED, '-p', 'simulated-driver', '-p', 'cachealloc-preload', '--features', 'cachealloc-preload/break-rules'],
        ['build', *CHECKED, '-p', 'cachealloc-cli'],
        ['test', '--no-run', *TESTS],
    ],
}
TEST = {
    'core': [['test', *CORE, *BREAK_RULES], ['test', '--no-run', *CORE], ['test', *CORE]],
    'preload': [['test', *TESTS, '--', *FIRST], ['test', *TESTS, '--', *(word for name in FIRST for word in ('--skip', name))]],
}
# A mutant of the core that allocates without end must not take the machine with it. The others' processes reserve much more
# than they use, and end after a minute.
DATA_BYTES_MAX = 6 << 30


def as_cargo(part, arguments):
    """cargo-mutants calls this script in place of cargo."""
    builder = os.environ['MUTANTS_CARGO']
    if arguments[0] != 'test':
        os.execvp('cargo', ['cargo', *arguments])
    os.environ['CARGO_BUILD_JOBS'] = '1'
    building = '--no-run' in arguments
    for command in (BUILD if building else TEST)[part]:
        builds = command[0] == 'build' or '--no-run' in command
        code = subprocess.call([builder, *command]) if builds else test(command, part == 'core')
        if code != 0:
            return code
    return 0


def test(command, limited):
    """Ends with the first test that fails, which cargo does not."""
    limit = lambda: limited and resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))
    child = subprocess.Popen(['cargo', *command], stdout=subprocess.PIPE, text=True, errors='replace', process_group=0,
                             preexec_fn=limit)

    def stop(*_):
        os.killpg(child.pid, signal.SIGKILL)

    # cargo-mutants ends what takes too long.
    signal.signal(signal.SIGTERM, lambda *_: (stop(), os._exit(1)))
    for line in child.stdout:
        print(line, end='', flush=True)
        if re.fullmatch(r'test .* \.\.\. FAILED\n', line):
            stop()
            return 101
    return child.wait()


def mutants(chosen):
    listed = subprocess.run(['cargo-mutants', 'mutants', '--list', *chosen], cwd=ROOT, check=True, capture_output=True, text=True)
    return listed.stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('part', choices=PARTS)
    parser.add_argument('--count', type=int, default=20)
    parser.add_argument('--seed', type=int, default=1, help='which of the samples of this size')
    parser.add_argument('--like', metavar='REGEX', help='all mutants whose name this finds, in place of a sample')
    parser.add_argument('--timeout', type=int, default=300, metavar='SECONDS', help='of the tests of one mutant')
    options = parser.parse_args()
    os.nice(19)
    package, folders, others = PARTS[options.part]
    chosen = ['-p', package] + [word for it in folders for word in ('--file', it)]
    chosen += [word for it in others for word in ('--exclude', it)]
    if options.like:
        chosen += ['--re', options.like]
    else:
        # Every so many of all, so that each file has its share.
        samples = max(1, len(mutants(chosen)) // options.count)
        chosen += ['--shard', f'{options.seed % samples}/{samples}', '--sharding', 'round-robin']
    out = ROOT / 'target/mutants' / options.part
    out.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        'MUTANTS_PART': options.part,
        'MUTANTS_CARGO': os.environ.get('CARGO', 'cargo'),
        'CARGO': str(pathlib.Path(__file__).resolve()),
        # Every tool that is missing here is one for all mutants.
        'CI': '',
    }
    copied = ['--copy-target', 'true', '--copy-vcs', 'true'] if options.part == 'preload' else []
    code = subprocess.call(['cargo-mutants', 'mutants', *chosen, *copied, '--profile', 'checked', '-j', '1', '--timeout',
                            str(options.timeout), '-o', str(out)], cwd=ROOT, env=environment)
    if code not in (0, 2, 3):  # 2: some survive; 3: some ran too long
        return code
    found = {kind: (out / 'mutants.out' / f'{kind}.txt').read_text().splitlines() for kind in ['caught', 'timeout', 'missed', 'unviable']}
    caught = len(found['caught']) + len(found['timeout'])
    tried = caught + len(found['missed'])
    print(f"{caught} of {tried} caught ({100 * caught / max(tried, 1):.1f} %), {len(found['timeout'])} of them by running too long; "
          f"{len(found['unviable'])} more do not compile")
    for name in found['missed']:
        print(f'survives: {name}')
    return 0


if __name__ == '__main__':
    inside = os.environ.get('MUTANTS_PART')
    sys.exit(as_cargo(inside, sys.argv[1:]) if inside else main())
