"""Compares the output of `cachealloc convert` for 5.pickle with what Python's own pickle module reads there.

f: folded, held at the end; s: speedscope; p: perfetto; j: json; q: pprof.
"""

import collections
import gzip
import json
import pickle

import perfetto
from perfetto import fields

snapshot = pickle.load(open("5.pickle", "rb"))
entries = snapshot["device_traces"][0]
blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]

# Bytes held at the end, by the names in the stack, outermost first.
held = collections.Counter()
for block in blocks:
    if block["state"] == "active_allocated":
        held[tuple(frame["name"] for frame in reversed(block["frames"]))] += block["requested_size"]
assert sum(held.values()) == 15 << 20, held

folded = collections.Counter()
for line in open("f"):
    stack, weight = line.rsplit(" ", 1)
    folded[tuple(frame.split(" ")[0] for frame in stack.split(";"))] += int(weight)
assert folded == held, (folded, held)

# speedscope: as its schema requires.
scope = json.load(open("s"))
assert scope["$schema"] == "https://www.speedscope.app/file-format-schema.json"
frames = scope["shared"]["frames"]
assert all(isinstance(frame["name"], str) for frame in frames)
assert all(set(frame) <= {"name", "file", "line", "col"} for frame in frames)
names = [profile["name"] for profile in scope["profiles"]]
assert names == ["device 0: held at the peak", "device 0: held at the end", "device 0: allocated"], names
for profile in scope["profiles"]:
    assert profile["type"] == "sampled" and profile["unit"] == "bytes" and profile["startValue"] == 0
    assert len(profile["samples"]) == len(profile["weights"])
    assert profile["endValue"] == sum(profile["weights"])
    assert all(0 <= frame < len(frames) for sample in profile["samples"] for frame in sample)
at_end = scope["profiles"][1]
seen = {tuple(frames[i]["name"].split(" ")[0] for i in sample): weight
        for sample, weight in zip(at_end["samples"], at_end["weights"])}
assert seen == dict(held), seen
allocated = sum(entry["size"] for entry in entries if entry["action"] == "alloc")
assert scope["profiles"][2]["endValue"] == allocated

# Perfetto: counters equal the sums of the slices, and end with the snapshot; each block is a slice.
perfetto.judge("p")
tracks, events = perfetto.read("p")
parents = {track.name: tracks[track.parent] for track in tracks.values() if track}
assert [name for name, parent in parents.items() if not parent] == ["device 0"]
last = {tracks[event.track].name: event.value for event in events if event.kind == perfetto.COUNTER}
assert all(parents[name].name == "device 0" for name in last)
reserved = sum(segment["total_size"] for segment in snapshot["segments"])
assert last == {"held by app": 15 << 20, "reserved": reserved}, last
slices = perfetto.slices(tracks, events)
allocs = [entry for entry in entries if entry["action"] == "alloc"]
assert [begin.time_ns for begin, _ in sorted(slices, key=lambda slice: slice[0].time_ns)] == \
    [entry["time_us"] * 1000 for entry in allocs]
assert all(begin.time_ns <= end.time_ns for begin, end in slices)
said = [(begin.said["bytes"], begin.said["address"], begin.said["stream"]) for begin, _ in slices]
assert sorted(said) == sorted((entry["size"], entry["addr"], entry["stream"]) for entry in allocs)
marks = [event for event in events if event.kind == perfetto.MARK]
assert [(event.name, event.said) for event in marks] == [
    ("out of memory", {"asked for bytes": entry["size"], "free on the device": entry["device_free"]})
    for entry in entries if entry["action"] == "oom"], marks
assert any("burst" in begin.said["called by"] for begin, _ in slices)

# The model: every entry, with the two entries of a free as one, and every block.
model = json.load(open("j"))
assert (model["format"], model["version"]) == ("cachealloc-model", 2)
assert all(("line" in frame) != ("offset" in frame) for frame in model["frames"]), "one of both"
assert any("offset" in frame for frame in model["frames"]), "libc.so.6 has no lines"
device, = model["devices"]
merged = collections.Counter(entry["action"] for entry in entries)
merged["free"], merged["out_of_memory"] = merged.pop("free_requested"), merged.pop("oom")
del merged["free_completed"]
assert collections.Counter(entry["action"] for entry in device["entries"]) == merged
for entry in device["entries"]:
    assert 0 <= entry["stack"] < len(model["stacks"]) and 0 <= entry["pool"] < len(model["pools"])
ours = [block for segment in device["segments"] for block in segment["blocks"]]
assert [block["address"] for block in ours] == [block["address"] for block in blocks]
for mine, theirs in zip(ours, blocks):
    stack = [dict(model["frames"][frame]) for frame in model["stacks"][mine["stack"]]]
    for frame in stack:
        frame["line"] = frame.pop("offset", frame.get("line"))
    assert stack == theirs["frames"], (stack, theirs)


def packed(numbers):
    """Returns the numbers of a packed repeated field."""
    whole, number, shift = [], 0, 0
    for byte in b"".join(numbers):
        number, shift = number | (byte & 127) << shift, shift + 7
        if byte < 128:
            whole, number, shift = whole + [number], 0, 0
    return whole


# pprof: as defined in profile.proto.
profile = fields(gzip.open("q").read())
texts = [text.decode() for text in profile[6]]
assert texts[0] == "" and len(set(texts)) == len(texts)
kinds = [tuple(texts[kind[field][0]] for field in (1, 2)) for kind in map(fields, profile[1])]
assert kinds == [(f"{when}_{what}", unit) for when in ("peak", "inuse", "alloc")
                 for what, unit in (("objects", "count"), ("space", "bytes"))], kinds
assert texts[profile[14][0]] == "peak_space"
times = [entry["time_us"] for entry in entries]
assert (profile[9][0], profile[10][0]) == (min(times) * 1000, (max(times) - min(times)) * 1000)
functions = {function[1][0]: function for function in map(fields, profile[5])}
locations = {location[1][0]: location for location in map(fields, profile[4])}
mappings = {mapping[1][0]: texts[mapping[5][0]] for mapping in map(fields, profile[3])}
assert len(locations) == len(profile[4]) and len(mappings) == len(profile[3]), "ids are unique"


def place(location):
    line, = map(fields, location[4])
    function = functions[line[1][0]]
    name, file = texts[function[3][0]], texts[function[4][0]]
    if location[2]:
        assert mappings[location[2][0]] == file and not line[2]
    return name, file, (location[3] or line[2])[0]


sums, in_use = [0] * 6, collections.Counter()
for sample in map(fields, profile[2]):
    values = packed(sample[2])
    sums = [sum + value for sum, value in zip(sums, values)]
    stack = tuple(place(locations[location]) for location in packed(sample[1]))
    in_use[stack] += values[3]
    labels = {texts[label[1][0]]: texts[label[2][0]] for label in map(fields, sample[3])}
    assert labels == {"device": "device 0", "library": "app"}, labels
wanted = collections.Counter()
for block in blocks:
    if block["state"] == "active_allocated":
        wanted[tuple((frame["name"], frame["filename"], frame["line"]) for frame in block["frames"])] += block["requested_size"]
assert +in_use == wanted, (in_use, wanted)
allocs = [entry["size"] for entry in entries if entry["action"] == "alloc"]
assert sums[3] == 15 << 20 and sums[5] == allocated and sums[4] == len(allocs), sums
assert sums[1] == (32 << 20) + (15 << 20) + (64 << 10) and sums[0] == 4 + 5 + 1, sums
