"""Snapshots for trying the report, in PyTorch's format and made up: a training run, with a leak, a burst of temporaries
and requests that could not be served. The same arguments make the same file.

usage: scripts/report_snapshots.py OUT.pickle [--steps N] [--entries N] [--rank N] [--hostile]
"""
import argparse
import pickle
import random

MIB = 1 << 20
LAYERS = 12
HOSTILE = [
    '</script><script>document.title="taken"</script>',
    '<img src=x onerror=alert(1)>',
    '<!--', '-->', ']]>', '&lt;b&gt;', '{{HEAD}}', '"\'`${1}`', '\u2028\u2029', 'a\0b', '\ud7ff\U0001f600', 'operator<<',
    'x' * 3000,
]


class Maker:
    def __init__(self, seed, ours):
        self.random = random.Random(seed)
        self.ours = ours
        self.entries, self.live, self.free = [], {}, {}
        self.next_address, self.time_us = 0x7F0000000000, 1_795_000_000_000_000
        self.segments, self.stacks = [], {}
        self.current = None

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
        self.entries.append({'action': action, **where, 'size': size, 'stream': 0, 'time_us': self.tick(), 'frames': stack,
                             **category})

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


def train(steps, rank=None, hostile=False, deep=20):
    """A run of a model whose losses are kept by mistake, and which asks for scratch memory in a loop. With a rank, written
    by our library; without, by PyTorch."""
    whose = {'version': '0.1.0', 'program': 'train.py', 'process': str(4711 + (rank or 0)), 'host': 'node7', 'rank': str(rank)}
    maker = Maker(1 + (rank or 0), whose if rank is not None else None)
    init = (('__init__', '/home/user/model.py', 31), ('build', '/home/user/train.py', 40))
    for layer in range(LAYERS):
        for size in (24 * MIB, 8 * MIB, 64 << 10):
            maker.alloc(size, maker.stack(*init, op=f'parameter{layer}', deep=deep))
    for name in HOSTILE if hostile else []:
        maker.alloc(3 * MIB, maker.stack((name, f'/home/{name}/{name}.py', 7), op=name))
    optimizer = (('init_state', '/usr/lib/python3.12/site-packages/torch/optim/adam.py', 238), ('train_step', '/home/user/train.py', 95))
    for step in range(steps):
        kept = []
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
        for address in reversed(kept):
            gradient = maker.alloc(2 * MIB, maker.stack(('backward', '/home/user/train.py', 91), op='backward', deep=deep))
            maker.drop(address)
            maker.drop(gradient)
    return maker.snapshot()


# As the report counts them: a free, which is two in the file, is one.
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
