"""Reads a trace that `cachealloc convert --to perfetto` wrote, in the format of Perfetto's trace_packet.proto."""

import collections

BEGIN, END, MARK, COUNTER = 1, 2, 3, 4
Event = collections.namedtuple("Event", "kind time_ns track category name said value")
Track = collections.namedtuple("Track", "name parent is_counter")


def fields(message):
    """Returns the fields of a protobuf message, by number."""
    found, at = collections.defaultdict(list), 0

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at, number, shift = at + 1, number | (byte & 127) << shift, shift + 7
            if byte < 128:
                return number
    while at < len(message):
        key = varint()
        if key & 7 == 2:
            length = varint()
            found[key >> 3].append(message[at:at + length])
            at += length
        else:
            assert key & 7 == 0, "neither a number nor bytes"
            found[key >> 3].append(varint())
    return found


def read(path):
    """Returns the tracks by number, and the events in the order of the file."""
    tracks, events = {0: None}, []
    # Categories, names, names of values, and values: each by number.
    texts = {1: {}, 2: {}, 3: {}, 29: {}}
    packets = fields(open(path, "rb").read())
    assert not packets.keys() - {1}, packets.keys()
    for number, packet in enumerate(map(fields, packets[1])):
        assert packet[10] == [1] and packet[13] == [1 if number == 0 else 2], "one sequence"
        for interned in map(fields, packet[12]):
            for kind, new in interned.items():
                for text in map(fields, new):
                    assert text[1][0] not in texts[kind], "each number once"
                    texts[kind][text[1][0]] = (text[2] or [b""])[0].decode()
        for track in map(fields, packet[60]):
            assert track[1][0] not in tracks and (track[5] or [0])[0] in tracks
            tracks[track[1][0]] = Track((track[2] or [b""])[0].decode(), (track[5] or [0])[0], bool(track[8]))
        for event in map(fields, packet[11]):
            said = {}
            for value in map(fields, event[4]):
                shown, = value[3] or value[7] or [texts[29][number] for number in value[17]]
                said[texts[3][value[1][0]]] = shown
            category = texts[1][event[3][0]] if event[3] else None
            name = texts[2][event[10][0]] if event[10] else None
            value = event[30][0] if event[30] else None
            events.append(Event(event[9][0], packet[8][0], event[11][0], category, name, said, value))
    return tracks, events


def slices(tracks, events):
    """Returns the begin and the end of each slice. A track has only one slice at a time."""
    open_now, whole = {}, []
    for event in events:
        assert tracks[event.track].is_counter == (event.kind == COUNTER)
        if event.kind == BEGIN:
            assert event.track not in open_now, "two at once"
            open_now[event.track] = event
        elif event.kind == END:
            whole.append((open_now.pop(event.track), event))
    assert not open_now, "a slice without an end"
    return whole


def judge(path):
    """Checks that counters equal the sums of the slices up to the end, and that sites have no superfluous tracks."""
    tracks, events = read(path)
    held, open_now, seen = collections.Counter(), {}, 0
    at_once, most = collections.Counter(), collections.Counter()
    for event in events:
        if event.kind == BEGIN and event.category not in ("range", "annotation"):
            site = tracks[event.track]
            assert site.name == event.name and tracks[site.parent].name == f"blocks of {event.category}"
            held[f"held by {event.category}"] += event.said["bytes"]
            open_now[event.track] = event
            at_once[site] += 1
            most[site] = max(most[site], at_once[site])
        elif event.kind == END and event.track in open_now:
            begun = open_now.pop(event.track)
            at_once[tracks[event.track]] -= 1
            held[f"held by {begun.category}"] -= begun.said["bytes"]
        elif event.kind == COUNTER and tracks[event.track].name != "reserved":
            assert event.value == held[tracks[event.track].name], (event, held)
            seen += 1
    sites = {event.track for event in events if event.kind == BEGIN and event.category not in ("range", "annotation")}
    assert collections.Counter(tracks[track] for track in sites) == most, "idle tracks are not used"
    return seen, len(slices(tracks, events))
