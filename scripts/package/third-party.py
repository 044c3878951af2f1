#!/usr/bin/env python3
"""Prints the licences of everything that is linked into the library and the command, with their texts.

    scripts/package/third-party.py [--debian]

Fails if a licence does not allow distribution under the licence of this project. Debian has the Apache License once for
all packages: with --debian it is named, not repeated."""
import json
import pathlib
import re
import subprocess
import sys

OURS = ["cachealloc-preload", "cachealloc-cli"]
ALLOWED = {"MIT", "MIT-0", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib",
           "0BSD", "Unlicense", "BSL-1.0", "Unicode-3.0", "CC0-1.0"}


def allowed(expression):
    """Returns whether a licence expression is allowed: one of its alternatives, or all licences of a list."""
    text = expression.replace("(", "").replace(")", "").replace("/", " OR ")
    if "(" in expression and " AND " in expression:  # (A OR B) AND C: all named must be allowed
        return all(word.strip() in ALLOWED for word in re.split(" OR | AND ", text))
    return any(all(word.strip() in ALLOWED for word in part.split(" AND ")) for part in text.split(" OR "))


def linked(metadata):
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] in OURS]
    seen = set()
    while waiting:
        id = waiting.pop()
        if id in seen or any("proc-macro" in target["kind"] for target in packages[id]["targets"]):
            continue  # a macro runs during compilation only
        seen.add(id)
        for dependency in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    found = [packages[id] for id in seen if packages[id]["source"]]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if path.is_file() and re.match(r"(?i)(license|licence|copying|copyright|notice|unlicense)", path.name):
            yield path.name, path.read_text(errors="replace").strip()


def debians(text):
    terms = r"TERMS AND CONDITIONS FOR USE, REPRODUCTION,? AND DISTRIBUTION.*?END OF TERMS AND CONDITIONS"
    return re.sub(terms, "/usr/share/common-licenses/Apache-2.0", text, flags=re.DOTALL)


def main():
    to_debian = "--debian" in sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parents[2]
    host = re.search("host: (.*)", subprocess.check_output(["rustc", "-vV"], text=True))[1]
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    metadata = json.loads(subprocess.check_output(command, cwd=root))
    packages = linked(metadata)
    refused = [f"{p['name']} {p['version']}: {p['license']}" for p in packages if not allowed(p["license"] or "")]
    if refused:
        sys.exit("third-party: not distributable under the licences of this project:\n  " + "\n  ".join(refused))
    print("What is linked into cachealloc, with the licence of each.\n")
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license']}  {package['repository'] or ''}".rstrip())
    print("Rust's standard library: MIT OR Apache-2.0  https://github.com/rust-lang/rust")
    said = {}
    for package in packages:
        for name, text in texts(package):
            said.setdefault(debians(text) if to_debian else text, []).append(f"{package['name']} ({name})")
    for text, names in said.items():
        print("\n" + "=" * 100 + "\n" + ", ".join(names) + "\n" + "=" * 100 + "\n\n" + text)


main()
