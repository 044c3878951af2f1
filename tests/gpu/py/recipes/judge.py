"""Checks that a recording has the tensors of a recipe's program, not the segments from which a cache cuts them.

usage: cachealloc top-sites --json -n 0 --by count FILE... | judge.py PROGRAM [--library NAME]

A line of PROGRAM that ends in `# tensor: BYTES x COUNT` makes COUNT allocations of that size. Prints what was found for
each such line; exit code 1 if that differs, or if nothing was allocated by that library.
"""
import json
import os
import re
import sys


def marked(path):
    """Returns line number, bytes and count of each marked line."""
    with open(path) as program:
        for number, line in enumerate(program, 1):
            found = re.search(r"# tensor: (\d+) x (\d+)$", line)
            if found:
                yield number, int(found[1]), int(found[2])


def main():
    path, sites = sys.argv[1], json.load(sys.stdin)["sites"]
    wrong = False
    for number, size, count in marked(path):
        here = [
            site for site in sites
            if any(os.path.basename(frame.get("filename", "")) == os.path.basename(path) and frame.get("line") == number
                   for frame in site["stack"])
        ]
        alike = [site for site in here if site["allocated_bytes"] == size * site["allocations"]]
        seen = sum(site["allocations"] for site in alike)
        held = sum(site["peak_blocks"] for site in alike)
        verdict = "ok" if seen == count else "WRONG"
        wrong |= seen != count
        others = "".join(f"; {site['allocations']} of {site['allocated_bytes']} bytes together"
                         for site in here if site not in alike)
        print(f"line {number}: {seen} of {count} with {size} bytes, {held} held at the peak{others}: {verdict}")
    if "--library" in sys.argv:
        name = sys.argv[sys.argv.index("--library") + 1]
        known = sorted({site["library"] for site in sites})
        wrong |= name not in known
        print(f"libraries: {', '.join(known)}: {'ok' if name in known else 'WRONG'}")
    sys.exit(wrong)


main()
