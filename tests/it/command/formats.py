"""Judges what `cachealloc convert` made of 5.pickle, from what Python's own pickle reads in it.

f: folded, held at the end; s: speedscope; p: perfetto; j: json.
"""

import collections
import json
import pickle

snapshot = pickle.load(open("5.pickle", "rb"))
entries = snapshot["device_traces"][0]
blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]

# What is held at the end, by the names of the stack, outermost first.
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

# speedscope: by its schema.
scope = json.load(open("s"))
assert scope["$schema"] == "https://www.speedscope.app/file-format-schema.json"
frames = scope["shared"]["frames"]
assert all(isinstance(frame["name"], str) for frame in frames)
assert all(set(frame) <= {"name", "file", "line", "col"} for frame in frames)
names = [profile["name"] for profile in scope["profiles"]]
assert names == ["GPU 0: held at the peak", "GPU 0: held at the end", "GPU 0: allocated"], names
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

# Perfetto: counters end where the snapshot does; each slice has a begin and an end.
events = json.load(open("p"))["traceEvents"]
assert all({"ph", "name", "pid", "tid", "ts"} <= set(event) for event in events)
last = {}
for event in events:
    if event["ph"] == "C":
        last[event["name"]] = event["args"]["bytes"]
reserved = sum(segment["total_size"] for segment in snapshot["segments"])
assert last == {"held by app": 15 << 20, "reserved": reserved}, last
begins = {event["id"]: event for event in events if event["ph"] == "b"}
ends = {event["id"]: event for event in events if event["ph"] == "e"}
allocs = [entry for entry in entries if entry["action"] == "alloc"]
assert len(begins) == len(allocs) and begins.keys() == ends.keys()
assert all(begins[id]["ts"] <= ends[id]["ts"] for id in begins)
assert sum(event["args"]["bytes"] for event in begins.values()) == allocated
assert [event["name"] for event in events if event["ph"] == "i"] == ["out of memory"]
assert any("burst" in event["args"]["called by"] for event in begins.values())

# The model: every entry, a free as one; every block.
model = json.load(open("j"))
assert (model["format"], model["version"]) == ("cachealloc-model", 1)
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
    stack = [model["frames"][frame] for frame in model["stacks"][mine["stack"]]]
    assert stack == theirs["frames"], (stack, theirs)
