#!/usr/bin/env python3
"""Checks memory snapshots in PyTorch's format: keys and types, sums, order, and whether the history can be replayed.

usage: check-snapshot.py [--from-start] [--opcodes] FILE...

  --from-start  the history must be complete: nothing was reserved or live before its first entry
  --opcodes     also check the pickle itself: only opcodes that PyTorch's viewer reads, in batches that it can process

Prints one line for each file, and exits with 1 if any is invalid. Needs nothing but Python's standard library.
"""

import bisect
import io
import json
import pickle
import pickletools
import sys

PROBLEMS_MAX = 20  # of one file; more would not help
NUMBER_END = 1 << 53  # the viewer's numbers are floating point
BATCH_ITEMS_MAX = 1000  # the viewer breaks somewhere above 100,000

SEGMENT_LISTS = ("segments", "host_segments", "graph_segments")
TOP = {"segments": list, "device_traces": list, "allocator_settings": dict, "external_annotations": list}
SEGMENT = {
    "device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int, "requested_size": int,
    "stream": int, "segment_type": str, "segment_pool_id": tuple, "is_expandable": bool, "frames": list, "blocks": list,
}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
ENTRY = {
    "action": str, "size": int, "stream": int, "time_us": int, "compile_context": str, "user_metadata": str,
    "pool_id": tuple,
}
ANNOTATION = {"name": str, "stage": str, "device": int, "time_us": int}
FRAME = {"name": str, "filename": str, "line": int}
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": str, "max_split_size": int, "garbage_collection_threshold": float,
    "expandable_segments": bool, "pinned_num_register_threads": int, "release_lock_on_cudamalloc": bool,
    "pinned_use_cuda_host_register": bool, "graph_capture_record_stream_reuse": bool, "max_round_threshold": int,
    "max_cached_size": int, "roundup_power2_divisions": dict,
}
STATES = {"active_allocated", "active_pending_free", "inactive"}
RANGE_ACTIONS = {"segment_alloc", "segment_free", "segment_map", "segment_unmap"}
BLOCK_ACTIONS = {"alloc", "free_requested", "free_completed"}
ACTIONS = RANGE_ACTIONS | BLOCK_ACTIONS | {"oom", "snapshot", "annotate"}
OPCODES = set(
    "PROTO FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST "
    "LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE NEWFALSE "
    "NONE SHORT_BINUNICODE BINUNICODE".split()
)


class Unsound(Exception):
    """An error in a snapshot."""


class Report:
    """The errors of one file, up to a bound."""

    def __init__(self):
        self.problems = []

    def add(self, place, what):
        self.problems.append(f"{place}: {what}")
        if len(self.problems) >= PROBLEMS_MAX:
            raise Unsound("too many problems")

    def keys(self, place, found, expected):
        """Checks that all keys exist with values of their type. Other keys are allowed."""
        if not isinstance(found, dict):
            self.add(place, f"should be a dict, is {type(found).__name__}")
            return False
        sound = True
        for key, kind in expected.items():
            value = found.get(key)
            if key not in found:
                self.add(place, f"has no key {key!r}")
            elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                self.add(place, f"{key!r} should be of type {kind.__name__}, is {value!r}")
            elif kind is tuple and not (len(value) == 2 and all(isinstance(part, int) for part in value)):
                self.add(place, f"{key!r} should be two numbers, is {value!r}")
            elif kind is int and not -1 <= value < NUMBER_END:
                self.add(place, f"{key!r} is {value}, which is not exact in the viewer")
            else:
                continue
            sound = False
        return sound


class NoClasses(pickle.Unpickler):
    def find_class(self, module, name):
        raise Unsound(f"the pickle names {module}.{name}: a snapshot is made of plain data")


def load(path):
    with open(path, "rb") as file:
        content = file.read()
    if content[:1] == b"{":
        return content, tuples(json.loads(content))
    stream = io.BytesIO(content)
    snapshot = NoClasses(stream).load()
    if stream.tell() != len(content):
        raise Unsound(f"{len(content) - stream.tell()} bytes follow the end of the pickle")
    return content, snapshot


def tuples(snapshot):
    """Converts pool ids to tuples, which JSON does not have."""
    for segment in (segment for key in SEGMENT_LISTS for segment in snapshot.get(key, [])):
        segment["segment_pool_id"] = tuple(segment.get("segment_pool_id", ()))
    for entries in snapshot.get("device_traces", []) + [snapshot.get("host_traces", [])]:
        for entry in entries:
            entry["pool_id"] = tuple(entry.get("pool_id", ()))
    return snapshot


def check_opcodes(content, report):
    """Checks opcodes and batches. A batch ends with APPENDS or SETITEMS; until then its items are on the viewer's stack."""
    depth, marks = 0, []
    for opcode, _, position in pickletools.genops(content):
        if opcode.name not in OPCODES:
            report.add(f"byte {position}", f"{opcode.name} is unknown to the viewer")
        elif opcode.name == "MARK":
            marks.append(depth)
        elif opcode.name in ("APPENDS", "SETITEMS"):
            mark = marks.pop()
            items = (depth - mark) // (2 if opcode.name == "SETITEMS" else 1)
            if items > BATCH_ITEMS_MAX:
                report.add(f"byte {position}", f"a batch of {items} items, more than {BATCH_ITEMS_MAX}")
            depth = mark
        elif opcode.name in ("TUPLE2", "APPEND"):
            depth -= 1
        elif opcode.name in ("TUPLE3", "SETITEM"):
            depth -= 2
        elif opcode.name in ("TUPLE", "LIST", "DICT"):
            depth = marks.pop() + 1
        elif opcode.name not in ("PROTO", "FRAME", "STOP", "MEMOIZE", "BINPUT", "LONG_BINPUT", "TUPLE1"):
            depth += 1


class Frames:
    """Checks lists of frames; shared lists only once."""

    def __init__(self, report):
        self.report, self.seen = report, {}

    def check(self, place, frames):
        if id(frames) in self.seen:
            return
        self.seen[id(frames)] = frames
        if not isinstance(frames, list):
            self.report.add(place, f"'frames' should be a list or absent, is {frames!r}")
            return
        for index, frame in enumerate(frames):
            if id(frame) not in self.seen:
                self.seen[id(frame)] = frame
                self.report.keys(f"{place}.frames[{index}]", frame, FRAME)


def histories(snapshot):
    """Yields the name of the list, the entries and the segments, for each device and for the host."""
    for device, entries in enumerate(snapshot["device_traces"]):
        yield f"device_traces[{device}]", entries, [one for one in snapshot["segments"] if one["device"] == device]
    yield "host_traces", snapshot.get("host_traces", []), snapshot.get("host_segments", [])


def check_segments(snapshot, key, frames, report):
    ends, last = {}, (-2, -1)
    for index, segment in enumerate(snapshot.get(key, [])):
        place = f"{key}[{index}]"
        frames.check(place, segment.get("frames", []) if isinstance(segment, dict) else [])
        if not report.keys(place, segment, SEGMENT):
            continue
        device, address = segment["device"], segment["address"]
        if (device, address) <= last:
            report.add(place, "segments should be sorted by device and address")
        if address < ends.get(device, 0):
            report.add(place, f"at {address:#x} overlaps the one before, which ends at {ends[device]:#x}")
        last, ends[device] = (device, address), address + segment["total_size"]
        if key == "host_segments" and device != -1:
            report.add(place, f"device {device} in a list of the host's")
        elif key != "host_segments" and not 0 <= device < len(snapshot["device_traces"]):
            report.add(place, f"device {device} has no list in 'device_traces'")
        if segment["segment_type"] not in ("large", "small"):
            report.add(place, f"'segment_type' is {segment['segment_type']!r}")
        check_blocks(place, segment, frames, report)


def check_blocks(place, segment, frames, report):
    end, sums = segment["address"], dict.fromkeys(("total_size", "allocated_size", "active_size", "requested_size"), 0)
    for index, block in enumerate(segment["blocks"]):
        where = f"{place}.blocks[{index}]"
        frames.check(where, block.get("frames", []) if isinstance(block, dict) else [])
        if not report.keys(where, block, BLOCK):
            return
        if block["address"] != end or block["size"] <= 0:
            report.add(where, f"{block['size']} bytes at {block['address']:#x}; the one before ends at {end:#x}")
        if block["state"] not in STATES:
            report.add(where, f"'state' is {block['state']!r}, none of {sorted(STATES)}")
        end = block["address"] + block["size"]
        active = block["state"] != "inactive"
        if active and block["requested_size"] > block["size"]:
            report.add(where, f"{block['requested_size']} bytes requested, of {block['size']}")
        sums["total_size"] += block["size"]
        sums["allocated_size"] += block["size"] * (block["state"] == "active_allocated")
        sums["active_size"] += block["size"] * active
        sums["requested_size"] += block["requested_size"] * active
    for key, value in sums.items():
        if segment[key] != value:
            report.add(place, f"{key!r} is {segment[key]}, and its blocks add up to {value}")


def check_entries(snapshot, frames, report):
    categories = set()
    for name, entries, _ in histories(snapshot):
        if not isinstance(entries, list):
            report.add(name, "should be a list")
            continue
        last_us = 0
        for index, entry in enumerate(entries):
            place = f"{name}[{index}]"
            if not report.keys(place, entry, ENTRY):
                continue
            if entry["action"] not in ACTIONS:
                report.add(place, f"'action' is {entry['action']!r}, none of {sorted(ACTIONS)}")
            report.keys(place, entry, {"device_free" if entry["action"] == "oom" else "addr": int})
            if entry["time_us"] < last_us:
                report.add(place, f"'time_us' goes back, from {last_us} to {entry['time_us']}")
            last_us = entry["time_us"]
            if "frames" in entry:
                frames.check(place, entry["frames"])
            if "category" in entry:
                report.keys(place, entry, {"category": str})
                follows = entry["action"] == "free_completed" and index > 0
                elided = follows and entries[index - 1].get("action") == "free_requested"
                if not elided and name != "host_traces":
                    categories.add(entry["category"])
    if categories and "unknown" not in categories:
        report.add("device_traces", "has categories and none is 'unknown': the viewer crashes on that")


def check_annotations(snapshot, report):
    """Checks that each range begins and ends in order of time, and is open only once at a time."""
    open_ones, last_us = set(), {}
    for index, annotation in enumerate(snapshot["external_annotations"]):
        place = f"external_annotations[{index}]"
        if not report.keys(place, annotation, ANNOTATION):
            continue
        one, begins = (annotation["device"], annotation["name"]), annotation["stage"] == "START"
        if annotation["stage"] not in ("START", "END") or begins == (one in open_ones):
            report.add(place, f"'stage' is {annotation['stage']!r}, and {one} {'is' if begins else 'is not'} begun")
        (open_ones.add if begins else open_ones.discard)(one)
        if annotation["time_us"] < last_us.get(one[0], 0):
            report.add(place, f"'time_us' goes back, to {annotation['time_us']}")
        last_us[one[0]] = annotation["time_us"]
    if open_ones:
        report.add("external_annotations", f"{sorted(open_ones)} end never")


def check_settings(snapshot, report):
    settings = snapshot["allocator_settings"]
    report.keys("allocator_settings", settings, SETTINGS)
    ours = {"trace_alloc_overflowed": bool, "trace_alloc_max_entries": int, "trace_alloc_dropped": int}
    if "trace_alloc_overflowed" in settings and report.keys("allocator_settings", settings, ours):
        if settings["trace_alloc_overflowed"] != (settings["trace_alloc_dropped"] > 0):
            report.add("allocator_settings", "'trace_alloc_overflowed' and 'trace_alloc_dropped' disagree")


class Intervals:
    """Disjoint intervals by their first address, each with a payload."""

    def __init__(self):
        self.firsts, self.at = [], {}

    def add(self, first, size, payload):
        other = self.overlap(first, max(size, 1))
        if other is not None:
            raise Unsound(f"{size} bytes at {first:#x} overlap {self.at[other][0]} bytes at {other:#x}")
        bisect.insort(self.firsts, first)
        self.at[first] = (size, payload)

    def remove(self, first):
        del self.firsts[bisect.bisect_left(self.firsts, first)]
        return self.at.pop(first)

    def overlap(self, first, size):
        index = bisect.bisect_left(self.firsts, first + size) - 1
        if index >= 0 and self.firsts[index] + max(self.at[self.firsts[index]][0], 1) > first:
            return self.firsts[index]
        return None

    def around(self, first, size):
        """Returns the start of the interval that contains this one, or None."""
        index = bisect.bisect_right(self.firsts, first) - 1
        if index >= 0 and first + size <= self.firsts[index] + self.at[self.firsts[index]][0]:
            return self.firsts[index]
        return None


class World:
    """The reserved and the live memory of one device."""

    def __init__(self, segments=()):
        self.ranges, self.live = Intervals(), Intervals()
        for segment in segments:
            self.ranges.add(segment["address"], segment["total_size"], (segment["stream"], segment["is_expandable"]))
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    pending = block["state"] == "active_pending_free"
                    self.live.add(block["address"], block["size"], (block["requested_size"], pending))

    def state(self):
        """Returns the state for comparison: live blocks with what entries contain, and ranges with adjacent ones merged."""
        live = {first: payload for first, (_, payload) in self.live.at.items()}
        joined = []
        for first in self.ranges.firsts:
            size, (stream, expandable) = self.ranges.at[first]
            if expandable and joined and joined[-1][1:] == (first, stream, True):
                joined[-1] = (joined[-1][0], first + size, stream, True)
            else:
                joined.append((first, first + size, stream, expandable))
        return live, joined

    def do(self, entry, undo):
        action = entry["action"]
        if action in RANGE_ACTIONS:
            comes = (action in ("segment_alloc", "segment_map")) != undo
            expandable = action in ("segment_map", "segment_unmap")
            (self.add_range if comes else self.remove_range)(entry, expandable)
        elif action == "free_requested":
            self.change(entry, was=undo, pending=not undo)
        elif action == "alloc":
            self.remove_block(entry, False) if undo else self.add_block(entry, False)
        elif action == "free_completed":
            self.add_block(entry, True) if undo else self.remove_block(entry, True)

    def add_block(self, entry, pending):
        if self.ranges.around(entry["addr"], max(entry["size"], 1)) is None:
            raise Unsound(f"the block at {entry['addr']:#x} lies in no segment")
        self.live.add(entry["addr"], entry["size"], (entry["size"], pending))

    def remove_block(self, entry, pending):
        self.change(entry, was=pending, pending=pending)
        self.live.remove(entry["addr"])

    def change(self, entry, was, pending):
        size, (requested, is_pending) = self.live.at.get(entry["addr"], (None, (None, None)))
        if size is None:
            raise Unsound(f"no block is live at {entry['addr']:#x}")
        if is_pending != was:
            raise Unsound(f"the block at {entry['addr']:#x} {'is' if is_pending else 'is not'} pending free")
        if requested != entry["size"]:
            raise Unsound(f"the block at {entry['addr']:#x} has {requested} bytes requested, not {entry['size']}")
        self.live.at[entry["addr"]] = (size, (requested, pending))

    def add_range(self, entry, expandable):
        first, size = entry["addr"], entry["size"]
        self.ranges.add(first, size, (entry["stream"], expandable))
        if expandable:
            before = self.ranges.around(first - 1, 1)
            for left in (first, before):
                if left is not None and self.joins(left):
                    left_size, payload = self.ranges.at[left]
                    right_size, _ = self.ranges.remove(left + left_size)
                    self.ranges.at[left] = (left_size + right_size, payload)

    def joins(self, left):
        size, (stream, expandable) = self.ranges.at[left]
        return expandable and self.ranges.at.get(left + size, (0, None))[1] == (stream, True)

    def remove_range(self, entry, expandable):
        first, size = entry["addr"], entry["size"]
        around = self.ranges.around(first, size)
        whole, payload = self.ranges.at.get(around, (0, (None, None)))
        if payload[1] != expandable or not (expandable or (around, whole) == (first, size)):
            kind = "expandable segment contains" if expandable else "segment is exactly"
            raise Unsound(f"no {kind} the {size} bytes at {first:#x}")
        inside = self.live.overlap(first, size)
        if inside is not None:
            raise Unsound(f"a block is live in it, at {inside:#x}")
        self.ranges.remove(around)
        for start, end in ((around, first), (first + size, around + whole)):
            if start < end:
                self.ranges.add(start, end - start, payload)


def check_replay(snapshot, from_start, report):
    """Replays the history backwards, as the viewer does, then forwards. Returns whether nothing existed before it."""
    explained = True
    for name, entries, segments in histories(snapshot):
        place = name
        try:
            world = World(segments)
            end = world.state()
            for index in range(len(entries) - 1, -1, -1):
                place = f"{name}[{index}], {entries[index]['action']}, backwards"
                world.do(entries[index], undo=True)
            before = len(world.live.firsts) + len(world.ranges.firsts)
            explained = explained and before == 0
            if from_start and before:
                blocks, ranges = len(world.live.firsts), len(world.ranges.firsts)
                place = name
                raise Unsound(f"{blocks} blocks and {ranges} segments were there before the first entry")
            for index, entry in enumerate(entries):
                place = f"{name}[{index}], {entry['action']}, forwards"
                world.do(entry, undo=False)
            if world.state() != end:
                place = name
                raise Unsound("does not lead to the segments and blocks that the file has")
        except Unsound as problem:
            report.add(place, problem)
    return explained


def check(path, from_start, opcodes):
    report = Report()
    explained = False
    try:
        content, snapshot = load(path)
        if opcodes and content[:1] != b"{":
            check_opcodes(content, report)
        if report.keys("the snapshot", snapshot, TOP):
            frames = Frames(report)
            check_settings(snapshot, report)
            for key in SEGMENT_LISTS:
                check_segments(snapshot, key, frames, report)
            check_entries(snapshot, frames, report)
            check_annotations(snapshot, report)
            if not report.problems:
                explained = check_replay(snapshot, from_start, report)
    except (Unsound, OSError) as problem:
        report.problems.append(str(problem))
    except (pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError, AttributeError, TypeError) as problem:
        report.problems.append(f"cannot be read as a snapshot: {type(problem).__name__}: {problem}")
    for problem in report.problems:
        print(f"{path}: {problem}")
    if not report.problems:
        blocks = sum(len(segment["blocks"]) for segment in snapshot["segments"])
        entries = sum(len(entries) for entries in snapshot["device_traces"])
        start = "from the start" if explained else "not from the start"
        print(f"{path}: sound: {len(snapshot['segments'])} segments, {blocks} blocks, {entries} entries, {start}")
    return not report.problems


def main(arguments):
    options = {argument for argument in arguments if argument.startswith("--")}
    files = [argument for argument in arguments if argument not in options]
    if not files or options - {"--from-start", "--opcodes"}:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    sound = [check(path, "--from-start" in options, "--opcodes" in options) for path in files]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
