"""Snapshots for trying the report, in PyTorch's format and made up: a training run, with a leak, a burst of temporaries
and requests that could not be served. The same arguments make the same file.

usage: scripts/report/report_snapshots.py OUT.pickle [--steps N] [--entries N] [--rank N] [--hostile]
"""
import argparse
import copy
import pickle
import random

MIB = 1 << 20
LAYERS = 12
HOSTILE = [
    '</script><script>document.title="taken"</script>',
    '<img src=x onerror=alert(1)>',
    '<!--', '-->', ']]>', '&lt;b&gt;', '{{HEAD}}', '"\'`${1}`', '\u2028\u2029', 'a\0b', '\ud7ff\U0001f600', 'operator<<', '\u202eright to left', 'zero\u200bwidth', 'bell\a\x1b[2J',
    'x' * 70_000,
]


class Maker:
    def __init__(self, seed, ours):
        self.random = random.Random(seed)
        self.ours = ours
        self.entries, self.live, self.free = [], {}, {}
        self.next_address, self.time_us = 0x7F0000000000, 1_795_000_000_000_000
        self.segments, self.stacks = [], {}
        self.current = None
        self.range, self.entered = '', 0

    def frame(self, name, filename, line):
        return {'name': name, 'filename': filename, 'line': line}

    def stack(self, *python, op='aten::empty', deep=0):
        """Frames are shared, as in real files: innermost first, native ones inside of Python's."""
        key = (python, op, deep)
        if key not in self.stacks:
            native = [self.frame('cudaMalloc', '/usr/lib/libcudart.so.13', 0x51208),
                      self.frame('c10::cuda::uncached_allocate(unsigned long)', '/opt/torch/lib/libc10_cuda.so', 0x13204),
                      self.frame(f'at::native::{op}(at::Tensor const&, c10::optional<c10::ScalarType>)',
                                 '/opt/torch/lib/libtorch_cuda.so', 0x26A4000 + sum(op.encode()))]
            native += [self.frame(f'at::_ops::level{level}::call', '/opt/torch/lib/libtorch_cpu.so', 0x190000 + level)
                       for level in range(deep)]
            outer = [self.frame('main', '/home/user/train.py', 120), self.frame('<module>', '/home/user/train.py', 131),
                     self.frame('_start', '/usr/bin/python3.12', 0x257A05)]
            self.stacks[key] = native + [self.frame(*frame) for frame in python] + outer
        return self.stacks[key]

    def tick(self):
        self.time_us += self.random.randint(1, 40)
        return self.time_us

    def entry(self, action, address, size, stack):
        where = {'device_free': address} if action == 'oom' else {'addr': address}
        names = [frame['name'] for frame in stack]
        category = {'category': 'cuBLAS' if any('matmul' in name for name in names) else 'PyTorch'} if self.ours else {}
        said = {'user_metadata': self.range, **({'range_entered': self.entered} if self.entered else {})} if self.range else {}
        self.entered = 0
        self.entries.append({'action': action, **where, 'size': size, 'stream': 0, 'time_us': self.tick(), 'frames': stack,
                             **category, **said})

    def enter(self, range_, entered):
        """Puts later entries into this range. `entered` is the first of its names, from 1, that was entered again."""
        self.range, self.entered = range_, entered

    def alloc(self, size, stack):
        bytes_ = (size + 511) // 512 * 512
        if not self.free.get(bytes_):
            self.reserve(bytes_, stack)
        address = self.free[bytes_].pop()
        self.live[address] = (bytes_, size, stack)
        self.entry('alloc', address, size, stack)
        return address

    def reserve(self, bytes_, stack):
        count = max(1, 20 * MIB // bytes_)
        total = (count * bytes_ + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        address, self.next_address = self.next_address, self.next_address + total + 2 * MIB
        self.segments.append((address, total, bytes_, count, stack))
        self.entry('segment_alloc', address, total, stack)
        self.free.setdefault(bytes_, []).extend(address + i * bytes_ for i in reversed(range(count)))

    def drop(self, address):
        bytes_, size, stack = self.live.pop(address)
        self.free[bytes_].append(address)
        for action in ('free_requested', 'free_completed'):
            self.entry(action, address, size, stack)

    def python(self, layer, line, what):
        return (('forward', '/home/user/model.py', line), (f'Layer{layer}.{what}', '/home/user/model.py', 200 + layer),
                ('train_step', '/home/user/train.py', 88))

    def snapshot(self):
        segments = []
        for number, (address, total, bytes_, count, stack) in enumerate(sorted(self.segments, key=lambda each: each[0])):
            blocks, at = [], address
            for place in range(count):
                held = self.live.get(address + place * bytes_)
                blocks.append({'address': at, 'size': bytes_, 'requested_size': held[1] if held else 0,
                               'state': 'active_allocated' if held else 'inactive', 'frames': held[2] if held else []})
                at += bytes_
            if at < address + total:
                blocks.append({'address': at, 'size': address + total - at, 'requested_size': 0, 'state': 'inactive',
                               'frames': []})
            active = sum(block['size'] for block in blocks if block['state'] != 'inactive')
            segments.append({'device': 0, 'address': address, 'total_size': total, 'allocated_size': active,
                             'active_size': active, 'requested_size': active, 'stream': 0,
                             'segment_type': 'small' if bytes_ <= MIB else 'large', 'is_expandable': False,
                             'segment_pool_id': (1, 0) if number % 5 == 4 else (0, 0), 'frames': stack, 'blocks': blocks})
        return {'segments': segments, 'device_traces': [self.entries], 'external_annotations': [],
                'allocator_settings': {'PYTORCH_CUDA_ALLOC_CONF': '', 'max_split_size': -1,
                                       **({'cachealloc': self.ours} if self.ours else {})}}


def train(steps, rank=None, hostile=False, deep=20, ranges=False):
    """A run of a model that keeps its losses by mistake, and requests scratch memory in a loop. With a rank, as written by
    cachealloc; without, by PyTorch. With ranges, each step and its parts are marked."""
    whose = {'version': '0.1.0', 'program': 'train.py', 'process': str(4711 + (rank or 0)), 'host': 'node7', 'rank': str(rank)}
    maker = Maker(1 + (rank or 0), whose if rank is not None else None)
    enter = maker.enter if ranges else lambda range_, entered: None
    enter('load', 1)
    init = (('__init__', '/home/user/model.py', 31), ('build', '/home/user/train.py', 40))
    for layer in range(LAYERS):
        for size in (24 * MIB, 8 * MIB, 64 << 10):
            maker.alloc(size, maker.stack(*init, op=f'parameter{layer}', deep=deep))
    for name in HOSTILE if hostile else []:
        maker.alloc(3 * MIB, maker.stack((name, f'/home/{name}/{name}.py', 7), op=name))
    optimizer = (('init_state', '/usr/lib/python3.12/site-packages/torch/optim/adam.py', 238), ('train_step', '/home/user/train.py', 95))
    for step in range(steps):
        kept = []
        enter('step/forward', 1)
        for layer in range(LAYERS):
            for op, size in (('matmul', 6 * MIB), ('softmax', 3 * MIB), ('dropout', 3 * MIB), ('layer_norm', 1 * MIB)):
                size += maker.random.randrange(4) * 256 * 1024 if layer % 3 == 0 else 0
                kept.append(maker.alloc(size, maker.stack(*maker.python(layer, 50 + len(op), 'forward'), op=op, deep=deep)))
            for _ in range(3):
                maker.drop(maker.alloc(5 * MIB, maker.stack(*maker.python(layer, 77, 'mask'), op='scratch', deep=deep)))
        maker.alloc(4 * MIB, maker.stack(('log', '/home/user/train.py', 102), ('train_step', '/home/user/train.py', 99), op='clone'))
        if step == 0:
            for layer in range(LAYERS):
                maker.alloc(16 * MIB, maker.stack(*optimizer, op='zeros_like', deep=deep))
        if step in (steps // 2, steps // 2 + 1):
            wanted = maker.stack(('evaluate', '/home/user/train.py', 110), op='cat')
            maker.entry('oom', 38 * MIB, 2048 * MIB, wanted)
        enter('step/backward', 2)
        for address in reversed(kept):
            gradient = maker.alloc(2 * MIB, maker.stack(('backward', '/home/user/train.py', 91), op='backward', deep=deep))
            maker.drop(address)
            maker.drop(gradient)
    return maker.snapshot()


def with_shortages(snapshot, count):
    """The same run with `count` failed requests, most of them in its second half."""
    more = copy.deepcopy(snapshot)
    entries = more['device_traces'][0]
    refused = next(entry for entry in entries if entry['action'] == 'oom')
    kept = [entry for entry in entries if entry['action'] != 'oom']
    begin, step = len(kept) // 2, len(kept) // 2 // count
    made = kept[:begin]
    for at in range(begin, len(kept)):
        made.append(kept[at])
        if (at - begin) % step == 0 and (at - begin) // step < count:
            made.append({**refused, 'time_us': kept[at]['time_us']})
    more['device_traces'] = [made]
    return more


def with_account(snapshot):
    """A snapshot of cachealloc with the breakdown of the device memory."""
    more = copy.deepcopy(snapshot)
    held = sum(segment['allocated_size'] for segment in more['segments'])
    reserved = sum(segment['total_size'] for segment in more['segments'])
    said = {'0 total': 8 << 30, '0 in_use': reserved + 700 * MIB, '0 cache_held': held, '0 cache_free': reserved - held,
            '0 arrays ' + HOSTILE[1]: 120 * MIB, '0 pools_held libnccl.so': 30 * MIB, '0 context': 400 * MIB, '0 managed app': 64 * MIB,
            '0 age_ms': 1500, '-1 pinned app': 5 * MIB}
    more['allocator_settings']['cachealloc'].update({f'memory {name}': str(bytes_) for name, bytes_ in said.items()})
    return more


def without_history(snapshot):
    less = copy.deepcopy(snapshot)
    less['device_traces'] = [[]]
    return less


def first_part(snapshot):
    """The same process after two thirds of its entries."""
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


class Reservations:
    """Segments that are reserved and released, including one from before the recording and a range that grows and shrinks in
    parts, with blocks that streams may use after their free. Records the state at each of the page's moments."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.entries, self.moments = [], []
        self.whole, self.parts, self.blocks, self.waiting = {0x10000000: 4 * MIB}, [], {}, set()
        self.address, self.time_us = 0x20000000, 1_795_000_000_000_000

    def note(self, action, address, size):
        self.time_us += 7
        frames = [{'name': 'get' if size % 3 else 'take', 'filename': f'/home/user/part{size % 4}.py', 'line': 1 + size % 5}]
        where = {'device_free': address} if action == 'oom' else {'addr': address}
        self.entries.append({'action': action, **where, 'size': size, 'stream': 0, 'time_us': self.time_us, 'frames': frames})

    def ranges(self):
        """All reserved memory: (address, bytes, in parts). Adjacent parts are one segment."""
        joined = []
        for address, size in sorted(self.parts):
            if joined and joined[-1][0] + joined[-1][1] == address:
                joined[-1][1] += size
            else:
                joined.append([address, size])
        return sorted([(*each, False) for each in self.whole.items()] + [(*each, True) for each in joined])

    def there(self):
        """Address, bytes and blocks of each segment: (bytes, requested, state), 0 for free blocks."""
        found = []
        for address, size, in_parts in self.ranges():
            blocks, at = [], address
            for block in sorted(each for each in self.blocks if address <= each < address + size):
                if block > at:
                    blocks.append([block - at, 0, 0])
                asked, rest = self.blocks[block]
                at = block + (asked + 511) // 512 * 512 + rest
                blocks.append([at - block, asked, 2 if block in self.waiting else 1])
            if at < address + size:
                blocks.append([address + size - at, 0, 0])
            found.append([address, size, in_parts, blocks])
        return found

    def there_json(self):
        return [[address, size, blocks] for address, size, _, blocks in self.there()]

    def room(self, size):
        """An address for a block: in a part, or in a segment for small blocks or for large ones, as PyTorch has them."""
        places = []
        for address, whole, in_parts, blocks in self.there():
            at = address
            for bytes_, _, state in blocks:
                if state == 0 and bytes_ >= size and (in_parts or (whole <= 2 * MIB) == (size <= MIB)):
                    places.append((at, bytes_, in_parts, whole, at + bytes_ == address + whole))
                at += bytes_
        return self.random.choice(places) if places else None

    def step(self):
        kind = self.random.choice(['alloc'] * 5 + ['free'] * 3 + ['late', 'reserve', 'release', 'map', 'unmap', 'oom'])
        before = len(self.entries)
        held = [each for each in self.blocks if each not in self.waiting]
        used = lambda address, size: any(address <= each < address + size for each in self.blocks)
        if kind == 'alloc':
            asked = self.random.choice([700, 5000, 300_000, 1_200_000, 3_000_000]) + self.random.randrange(500)
            size = (asked + 511) // 512 * 512
            if place := self.room(size):
                address, piece, in_parts, segment, is_last = place
                rest = piece - size if not in_parts and segment > 2 * MIB and piece - size <= MIB else 0
                if rest == 0 or is_last:  # before another block, no file tells a rest from what is free beside it
                    self.note('alloc', address, asked)
                    self.blocks[address] = (asked, rest)
        elif kind == 'free' and held:
            address = self.random.choice(held)
            for action in ('free_requested', 'free_completed'):
                self.note(action, address, self.blocks[address][0])
            self.take_away(address)
        elif kind == 'late' and held:
            address = self.random.choice(held)
            self.note('free_requested', address, self.blocks[address][0])
            self.waiting.add(address)
        elif kind == 'reserve':
            size = self.random.choice([2, 6, 20]) * MIB
            self.note('segment_alloc', self.address, size)
            self.whole[self.address] = size
            self.address += 64 * MIB
        elif kind == 'release' and (empty := [each for each in self.whole.items() if not used(*each)]):
            address, size = self.random.choice(empty)
            self.note('segment_free', address, size)
            del self.whole[address]
        elif kind == 'map' and (out := [place for place in range(8) if (part(place), 2 * MIB) not in self.parts]):
            address = part(self.random.choice(out))
            self.note('segment_map', address, 2 * MIB)
            self.parts.append((address, 2 * MIB))
        elif kind == 'unmap' and (empty := [each for each in self.parts if not used(*each)]):
            address, size = self.random.choice(empty)
            # A block may reach into it from the part before.
            if all(each + size_of[0] + 512 <= address or each > address for each, size_of in self.blocks.items()):
                self.note('segment_unmap', address, size)
                self.parts.remove((address, size))
        elif kind == 'oom':
            self.note('oom', 5 * MIB, 40 * MIB)
        if len(self.entries) > before:
            self.moments.append(self.there_json())
            if kind != 'late':
                self.let_go()  # not directly after its request: that would be a free at once

    def let_go(self):
        """Ends the use of some blocks by streams. The page has no moment for this: it shows at the next one."""
        for address in [each for each in sorted(self.waiting) if self.random.random() < 0.2]:
            self.note('free_completed', address, self.blocks[address][0])
            self.waiting.discard(address)
            self.take_away(address)

    def take_away(self, address):
        del self.blocks[address]

    def snapshot(self):
        segments = []
        for address, size, in_parts, blocks in self.there():
            made, at = [], address
            for bytes_, asked, state in blocks:
                made.append({'address': at, 'size': bytes_, 'requested_size': asked, 'frames': [],
                             'state': ['inactive', 'active_allocated', 'active_pending_free'][state]})
                at += bytes_
            segments.append({'device': 0, 'address': address, 'total_size': size, 'stream': 0, 'is_expandable': in_parts,
                             'segment_type': 'small' if size <= 2 * MIB else 'large', 'segment_pool_id': (0, 0), 'frames': [],
                             'blocks': made})
        return {'segments': segments, 'device_traces': [self.entries], 'external_annotations': [], 'allocator_settings': {}}


def part(place):
    """Returns the address of a part of the range that grows in parts."""
    return 0x700000000000 + place * 2 * MIB


def reservations(seed, steps):
    """Returns such a run, and the reserved memory at each of the page's moments, the first of which precedes all entries."""
    maker = Reservations(seed)
    maker.moments.append(maker.there_json())
    for _ in range(steps):
        maker.step()
    return maker.snapshot(), maker.moments


# As the report counts them: a free is one event, but two entries in the file.
ENTRIES_OF_STEP = 2 * LAYERS * (4 + 3 + 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('out')
    parser.add_argument('--steps', type=int, default=12)
    parser.add_argument('--entries', type=int, help='as many steps as make about so many entries')
    parser.add_argument('--rank', type=int)
    parser.add_argument('--hostile', action='store_true')
    options = parser.parse_args()
    steps = options.steps if options.entries is None else max(1, options.entries // ENTRIES_OF_STEP)
    with open(options.out, 'wb') as out:
        pickle.dump(train(steps, options.rank, options.hostile), out, protocol=4)


if __name__ == '__main__':
    main()
