"""PyTorch's caching allocator as a policy, without memory: the driver memory that it uses for the requests of one stream.

Constants, rules and their order are those of c10/cuda/CUDACachingAllocator.cpp under the default options, and with
`expandable_segments:True`; a limit is the result of `per_process_memory_fraction`. Not included: other streams,
`max_split_size_mb` and the other options, captures.
"""
import bisect

MIB = 1 << 20
ROUNDING = 512
SMALL_MAX = MIB
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MIB, 20 * MIB
OWN_SEGMENT_FROM, OWN_SEGMENT_ROUNDING = 10 * MIB, 2 * MIB
# Bytes of addresses of an expandable segment: more than is ever mapped.
RANGE = 1 << 50


class Shortage(Exception):
    """The limit does not permit the request."""


def rounded_up(size, unit):
    return -(-size // unit) * unit


class Block:
    """A block. `before` and `behind` are the adjacent blocks in its segment."""

    __slots__ = "address", "size", "pool", "before", "behind", "is_free", "is_mapped"

    def __init__(self, address, size, pool, is_mapped=True):
        self.address, self.size, self.pool = address, size, pool
        self.before = self.behind = None
        self.is_free, self.is_mapped = True, is_mapped

    def end(self):
        return self.address + self.size

    def cut(self, size):
        """Keeps `size` bytes and returns the rest as a new block."""
        rest = Block(self.address + size, self.size - size, self.pool, self.is_mapped)
        rest.before, rest.behind = self, self.behind
        if rest.behind:
            rest.behind.before = rest
        self.behind, self.size = rest, size
        return rest


class Blocks:
    """Free blocks in a given order, searched by bisection."""

    def __init__(self, key):
        self.key, self.keys, self.blocks = key, [], []

    def add(self, block):
        at = bisect.bisect_left(self.keys, self.key(block))
        self.keys.insert(at, self.key(block))
        self.blocks.insert(at, block)

    def remove(self, block):
        at = bisect.bisect_left(self.keys, self.key(block))
        assert self.blocks[at] is block
        del self.keys[at], self.blocks[at]

    def from_size(self, size):
        return self.blocks[bisect.bisect_left(self.keys, (size, 0)) :]


class Pool:
    def __init__(self, is_small):
        self.is_small = is_small
        self.segment = SMALL_SEGMENT if is_small else LARGE_SEGMENT
        self.free = Blocks(lambda block: (block.size, block.address))
        self.unmapped = Blocks(lambda block: block.address)

    def merged(self, block):
        """Returns the block, which is in no list, merged with the free blocks next to it."""
        for neighbour in (block.before, block.behind):
            if neighbour and neighbour.is_free and neighbour.is_mapped == block.is_mapped:
                (self.free if neighbour.is_mapped else self.unmapped).remove(neighbour)
                first, last = sorted((block, neighbour), key=lambda it: it.address)
                first.size += last.size
                first.behind = last.behind
                if first.behind:
                    first.behind.before = first
                block = first
        return block


class Allocator:
    def __init__(self, is_expandable, limit=None):
        self.is_expandable, self.limit = is_expandable, limit
        self.small, self.large = Pool(True), Pool(False)
        self.next_address = 0
        self.reserved = self.peak = 0
        if is_expandable:
            for pool in (self.small, self.large):
                pool.unmapped.add(Block(self.addresses(RANGE), RANGE, pool, is_mapped=False))

    def allocate(self, requested):
        size = rounded_up(max(requested, 1), ROUNDING)
        pool = self.small if size <= SMALL_MAX else self.large
        block = self.best_fit(pool, size) or self.grown(pool, size)
        if block is None:
            self.release_free()
            block = self.grown(pool, size)
        if block is None:
            raise Shortage
        rest = block.size - size
        is_cut = rest >= ROUNDING if pool.is_small or self.is_expandable else rest > SMALL_MAX
        if is_cut:
            pool.free.add(block.cut(size))
        block.is_free = False
        return block

    def give_back(self, block):
        block.is_free = True
        block.pool.free.add(block.pool.merged(block))

    def best_fit(self, pool, size):
        found = pool.free.from_size(size)
        if not found:
            return None
        best = found[0]
        if self.is_expandable:
            # A block that can grow counts with its largest possible size.
            for other in found[1:]:
                if room(other) >= room(best):
                    break
                best = other
        pool.free.remove(best)
        return best

    def grown(self, pool, size):
        if pool.is_small:
            segment = SMALL_SEGMENT
        elif size < OWN_SEGMENT_FROM:
            segment = LARGE_SEGMENT
        else:
            segment = rounded_up(size, OWN_SEGMENT_ROUNDING)
        if self.limit is not None and self.reserved + segment > self.limit:
            return None
        if self.is_expandable:
            return self.mapped(pool, size)
        self.take(segment)
        return Block(self.addresses(segment), segment, pool)

    def mapped(self, pool, size):
        """Maps a block at the lowest addresses where `size` bytes are free or unmapped."""
        for block in pool.unmapped.blocks:
            first = block.before if block.before and block.before.is_free else block
            last, bytes_ = first, 0
            while last and last.is_free and bytes_ < size:
                bytes_ += last.size
                last = last.behind
            if bytes_ >= size:
                break
        else:
            return None
        if not first.is_mapped:
            first = self.map(first, min(first.size, size))
        while first.size < size:
            first = self.map(first.behind, min(size - first.size, first.behind.size))
        pool.free.remove(first)
        return first

    def map(self, block, size):
        """Maps whole pages of an unmapped block, and returns the free block that contains them."""
        pool = block.pool
        end = min(rounded_up(block.address + size, pool.segment), block.end())
        pool.unmapped.remove(block)
        self.take(end - block.address)
        if end < block.end():
            pool.unmapped.add(block.cut(end - block.address))
        block.is_mapped = True
        block = pool.merged(block)
        pool.free.add(block)
        return block

    def release_free(self):
        for pool in (self.large, self.small):
            for block in list(pool.free.blocks):
                if self.is_expandable:
                    self.unmap(block)
                elif not block.before and not block.behind:
                    pool.free.remove(block)
                    self.reserved -= block.size

    def unmap(self, block):
        """Unmaps the whole pages of a block."""
        pool = block.pool
        begin = rounded_up(block.address, pool.segment)
        end = block.end() // pool.segment * pool.segment
        if begin >= end:
            return
        pool.free.remove(block)
        if begin > block.address:
            rest = block.cut(begin - block.address)
            pool.free.add(block)
            block = rest
        if end < block.end():
            pool.free.add(block.cut(end - begin))
        block.is_mapped = False
        pool.unmapped.add(pool.merged(block))
        self.reserved -= end - begin

    def take(self, size):
        self.reserved += size
        self.peak = max(self.peak, self.reserved)

    def addresses(self, size):
        address = self.next_address
        self.next_address += rounded_up(size, LARGE_SEGMENT)
        return address


def room(block):
    behind = block.behind
    return block.size + (behind.size if behind and not behind.is_mapped else 0)


def reserved_peak(events, is_expandable, limit=None):
    """Returns the peak in bytes for `("a", name, bytes)` and `("f", name)` in order, or None if the limit is too small."""
    allocator = Allocator(is_expandable, limit)
    blocks = {}
    try:
        for event in events:
            if event[0] == "a":
                blocks[event[1]] = allocator.allocate(event[2]) if event[2] else None
            elif blocks[event[1]]:
                allocator.give_back(blocks.pop(event[1]))
    except Shortage:
        return None
    return allocator.peak
